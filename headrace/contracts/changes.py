"""What can be said about the step from one contract to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Breaks = Literal["backward", "forward", "identity", "key order", "history", "privacy"]
Level = Literal["none", "patch", "minor", "major"]
Compatibility = Literal["full", "backward", "forward", "none"]
Verdict = Literal["compatible", "breaking"]

_LEVELS: tuple[Level, ...] = ("none", "patch", "minor", "major")


@dataclass(frozen=True)
class Change:
    """One difference.

    `backward` is broken when new readers cannot read old data, `forward` when old readers cannot read
    new data. The other words name promises beyond the shape of the data.
    """

    path: str  # shipping_address.street, items[].quantity, attributes{}
    what: str
    why: str
    level: Level
    breaks: tuple[Breaks, ...] = ()

    @property
    def breaking(self) -> bool:
        return self.level == "major"


@dataclass(frozen=True)
class Comparison:
    old_version: str
    new_version: str
    changes: tuple[Change, ...]

    @property
    def level(self) -> Level:
        return max((change.level for change in self.changes), key=_LEVELS.index, default="none")

    @property
    def verdict(self) -> Verdict:
        return "breaking" if self.level == "major" else "compatible"

    @property
    def compatible(self) -> bool:
        return self.verdict == "compatible"

    @property
    def compatibility(self) -> Compatibility:
        """Which readers can read whose data, whatever the verdict."""
        broken = {word for change in self.changes for word in change.breaks}
        if "backward" in broken:
            return "none" if "forward" in broken else "forward"
        return "backward" if "forward" in broken else "full"

    @property
    def asked_version(self) -> str:
        """The lowest version that the new contract may carry."""
        major, minor, patch = numbers(self.old_version)
        match self.level:
            case "major":
                return f"{major + 1}.0.0"
            case "minor":
                return f"{major}.{minor + 1}.0"
            case "patch":
                return f"{major}.{minor}.{patch + 1}"
            case _:
                return f"{major}.{minor}.{patch}"

    @property
    def version_ok(self) -> bool:
        return numbers(self.new_version) >= numbers(self.asked_version)


def numbers(version: str) -> tuple[int, int, int]:
    major, minor, patch = version.removeprefix("v").split(".")
    return (int(major), int(minor), int(patch))
