"""The words that Headrace adds to the standard, in `customProperties`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from open_data_contract_standard.model import CustomProperty

from headrace.contracts.problems import Place, Problem, nearest

OF_CONTRACT = (
    "eventTime",
    "lateness",
    "maxFutureSkew",
    "dedupeHorizon",
    "idleAfter",
    "partitions",
    "compacted",
)
OF_FIELD = ("mask", "enum")
_ALIKE = 0.85


@dataclass(frozen=True)
class Custom:
    value: object
    place: Place


def read_custom(
    properties: Sequence[CustomProperty] | None,
    place: Place,
    names: Sequence[str],
    problems: list[Problem],
) -> dict[str, Custom]:
    """Our own words among the custom properties. Other words belong to other tools, near misses to nobody."""
    found: dict[str, Custom] = {}
    for index, custom in enumerate(properties or []):
        here = (*place, "customProperties", index)
        name = custom.property or ""
        if name in names:
            if name in found:
                problems.append(Problem((*here, "property"), f"'{name}' is given twice"))
            else:
                found[name] = Custom(custom.value, (*here, "value"))
        elif name in OF_CONTRACT:
            problems.append(
                Problem((*here, "property"), f"'{name}' belongs to the contract", "move it to the top level")
            )
        elif name in OF_FIELD:
            problems.append(
                Problem((*here, "property"), f"'{name}' belongs to a field", "move it to a property")
            )
        elif meant := nearest(name, [*OF_CONTRACT, *OF_FIELD], at_least=_ALIKE):
            problems.append(
                Problem((*here, "property"), f"'{name}' is not known", f"did you mean '{meant}'?")
            )
    return found
