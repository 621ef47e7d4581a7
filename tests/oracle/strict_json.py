"""One strict RFC 8259 text to Python values; every number keeps the literal it was written with."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

DEEPEST = 1000
LONGEST_NUMBER = 1000

_BRACKETS_AND_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class NotJson(ValueError):
    pass


@dataclass(frozen=True)
class Number:
    literal: str

    @property
    def is_integer(self) -> bool:
        return not set(self.literal) & set(".eE")

    def digits_and_exponent(self) -> tuple[str, int]:
        """The significant digits (none for zero) and the power of ten of the last one."""
        mantissa, _, exponent = self.literal.lower().partition("e")
        whole, _, fraction = mantissa.lstrip("-").partition(".")
        digits = (whole + fraction).lstrip("0")
        power = int(exponent or "0") - len(fraction)
        significant = digits.rstrip("0")
        return significant, power + len(digits) - len(significant)

    def fits(self, precision: int, scale: int) -> bool:
        digits, power = self.digits_and_exponent()
        return not digits or (power >= -scale and len(digits) + power <= precision - scale)

    def decimal(self) -> Decimal:
        return Decimal(self.literal)


def parse(text: str) -> object:
    if _depth(text) > DEEPEST:
        raise NotJson(f"nested deeper than {DEEPEST}")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 3 * DEEPEST)
    try:
        value: object = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_constant)
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(str(error)) from error
    finally:
        sys.setrecursionlimit(limit)
    return value


def _depth(text: str) -> int:
    deepest = now = 0
    for token in _BRACKETS_AND_STRINGS.findall(text):
        if token in "[{":
            now += 1
            deepest = max(deepest, now)
        elif token in "]}":
            now -= 1
    return deepest


def _number(literal: str) -> Number:
    if sum(c.isdigit() for c in literal) > LONGEST_NUMBER:
        raise NotJson(f"a number of more than {LONGEST_NUMBER} digits")
    return Number(literal)


def _constant(literal: str) -> NoReturn:
    raise NotJson(f"{literal} is not JSON")
