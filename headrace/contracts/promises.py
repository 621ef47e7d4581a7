"""What a contract promises to its readers: the standard's `slaProperties` that Headrace acts on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from open_data_contract_standard.model import ServiceLevelAgreementProperty

from headrace.contracts.durations import parse_duration
from headrace.contracts.fields import FieldReader
from headrace.contracts.problems import Place, nearest
from headrace.errors import UsageError

_DURATIONS = ("retention", "freshness", "latency")
_SHARES = ("errorRate",)
_YEAR = ("y", "yr", "year", "years")
_PERCENT = ("%", "percent", "pct")


@dataclass
class Promises:
    """None where the contract promises nothing."""

    retention: timedelta | None = None
    freshness: timedelta | None = None
    latency: timedelta | None = None
    error_rate: float | None = None


def read_promises(
    properties: Sequence[ServiceLevelAgreementProperty] | None, reader: FieldReader
) -> Promises:
    """Other properties of the standard are left to other tools; near misses are nobody's."""
    promises, seen = Promises(), set()
    for index, sla in enumerate(properties or []):
        here: Place = ("slaProperties", index)
        name, known = sla.property or "", (*_DURATIONS, *_SHARES)
        if name not in known:
            if meant := nearest(name, known, at_least=0.85):
                reader.fault((*here, "property"), f"'{name}' is not known", f"did you mean '{meant}'?")
            continue
        if name in seen:
            reader.fault((*here, "property"), f"the {name} is given twice")
        seen.add(name)
        if name in _SHARES:
            promises.error_rate = _share(sla.value, sla.unit or "", (*here, "value"), reader)
        else:
            setattr(promises, name, _duration(sla.value, sla.unit or "", (*here, "value"), reader))
    return promises


def read_duration(text: str, place: Place, may_be_zero: bool, reader: FieldReader) -> timedelta:
    try:
        duration = parse_duration(text)
    except UsageError as error:
        reader.fault(place, error.what, error.hint)
        return timedelta(days=1)
    if not duration and not may_be_zero:
        reader.fault(place, "must be longer than zero")
    return duration


def _duration(value: object, unit: str, place: Place, reader: FieldReader) -> timedelta:
    if unit.lower() in _YEAR:
        value, unit = (Decimal(str(value)) * 365 if _is_number(value) else value), "days"
    return read_duration(f"{value} {unit}".strip(), place, False, reader)


def _share(value: object, unit: str, place: Place, reader: FieldReader) -> float | None:
    if unit.lower() not in _PERCENT or not _is_number(value) or not 0 <= Decimal(str(value)) <= 100:
        written = f"{value} {unit}".strip()
        reader.fault(place, f"'{written}' is not a percentage", "write value: 1, unit: percent")
        return None
    return float(Decimal(str(value)) / 100)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
