"""What is wrong in a contract file: collected first, raised together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from headrace.errors import ContractError

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    place: Place  # ("schema", 0, "properties", 3, "logicalType")
    what: str
    hint: str = ""
    line: int = 0  # when it is not the line of the place


def written(place: Place) -> str:
    """schema[0].properties[3].logicalType"""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(parts).removeprefix(".")


def shown(path: Path) -> str:
    """The path as the user would type it from where they are."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def contract_error(file: Path, lines: dict[Place, int], problems: Sequence[Problem]) -> ContractError:
    """One error for all problems of a file, in the order of its lines."""
    placed = sorted(
        {(p.line or _line(lines, p.place), p.place, p.what, p.hint) for p in problems}, key=_order
    )
    if len(placed) == 1:
        line, place, what, hint = placed[0]
        return ContractError(_labelled(place, what), where=f"{shown(file)}:{line}", hint=hint)
    return ContractError(
        "\n".join(
            f"{shown(file)}:{line}: {_labelled(place, what)}" + (f" → {hint}" if hint else "")
            for line, place, what, hint in placed
        )
    )


def joined(errors: Sequence[ContractError]) -> ContractError:
    """One error for the problems of several files."""
    return errors[0] if len(errors) == 1 else ContractError("\n".join(str(error) for error in errors))


def nearest(name: str, names: Iterable[str], at_least: float = 0.6) -> str | None:
    """The name most like `name`, if any is alike enough. Case, `_` and `-` do not count."""
    best = max(names, key=lambda other: _likeness(name, other), default=None)
    return best if best is not None and _likeness(name, best) >= at_least else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    best = nearest(name, names)
    return f"did you mean '{best}'?" if best else ""


def _likeness(one: str, other: str) -> float:
    a, b = _bare(one), _bare(other)
    # Two letters swapped ("maks") weigh too much in a short word for the ratio alone.
    return 0.9 if len(a) > 2 and a != b and sorted(a) == sorted(b) else SequenceMatcher(None, a, b).ratio()


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _line(lines: dict[Place, int], place: Place) -> int:
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _labelled(place: Place, what: str) -> str:
    return f"{written(place)}: {what}" if place else what


def _order(entry: tuple[int, Place, str, str]) -> tuple[int, str, str]:
    return (entry[0], written(entry[1]), entry[2])
