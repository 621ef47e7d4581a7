"""Every error a user can meet, in one tree.

HeadraceError            what happened, where, and what to do about it
├── UsageError           a wrong argument or setting (exit 2)
├── ContractError        a contract file that cannot be used
├── AppError             a wrong declaration in an app file
├── ServiceError         Java, Kafka or Postgres is missing, unreachable or refuses
├── DataError            an input file, an offset range or a table that is not what it should be
└── LeakError            an event without a fate: the one thing that must never happen
"""

from __future__ import annotations

import difflib
from collections.abc import Collection


class HeadraceError(Exception):
    """An error that the command line prints as one message, without a stack trace."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"\n  → {self.hint}" if self.hint else ""
        return f"{place}{self.what}{advice}"


class UsageError(HeadraceError):
    exit_code = 2


class ContractError(HeadraceError):
    pass


class AppError(HeadraceError):
    pass


class ServiceError(HeadraceError):
    pass


class DataError(HeadraceError):
    pass


class LeakError(HeadraceError):
    pass


def known_names(name: str, known: Collection[str]) -> str:
    """The hint for a name that nobody knows: the nearest one, or all of them."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(sorted(known))}"
