"""The language of sequences: `F{3,} (H | W) !X C?` becomes a tree.

    sequence    = series ("|" series)*
    series      = element+
    element     = "!" symbol element  |  atom quantifier?
    atom        = symbol  |  "(" sequence ")"
    quantifier  = "?"  |  "*"  |  "+"  |  "{n}"  |  "{n,}"  |  "{n,m}"

`!X B` is B with no X between it and the event before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from headrace.errors import AppError, known_names
from headrace.sequences import Choice, Guarded, Node, Repeat, Series, Symbol, shortest

MOST_REPEATS = 1000
DEEPEST = 50
_TOKEN = re.compile(r"\s*(?:(?P<symbol>[A-Za-z][A-Za-z0-9_]*)|(?P<bounds>\{[^{}]*\})|(?P<mark>[()|?*+!]))")
_BOUNDS = re.compile(r"\{\s*([0-9]{1,9})\s*(,\s*([0-9]{1,9})?\s*)?\}")
_QUANTIFIERS = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def parse_sequence(text: str, defined: Collection[str], *, what: str, where: str) -> Node:
    """Raises AppError, with the position, for what cannot be read, is not defined, or could match nothing."""
    tree = _Parser(text, defined, what, where).parsed()
    if shortest(tree) == 0:
        raise AppError(
            f"{what}: '{text}' could match no event at all",
            where=where,
            hint="at least one element must not be optional",
        )
    return tree


@dataclass(frozen=True)
class _Token:
    kind: str  # symbol, bounds, mark, end
    text: str
    at: int  # from 1, as people count


class _Parser:
    def __init__(self, text: str, defined: Collection[str], what: str, where: str) -> None:
        self._text, self._defined, self._what, self._where = text, defined, what, where
        self._tokens = self._read()
        self._next = 0
        self._depth = 0

    def parsed(self) -> Node:
        if self._now.kind == "end":
            self._refuse("there is no sequence", self._now, "name at least one symbol")
        tree = self._sequence()
        if self._now.kind != "end":
            self._refuse(f"'{self._now.text}' closes nothing", self._now, "remove it, or open a group before")
        return tree

    @property
    def _now(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._now
        self._next += 1
        return token

    def _sequence(self) -> Node:
        options = [self._series()]
        while self._now.text == "|":
            self._take()
            options.append(self._series())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _series(self) -> Node:
        parts: list[Node] = []
        while self._now.kind != "end" and self._now.text not in ("|", ")"):
            if self._now.text == "!" and not parts and not self._depth:
                self._refuse("nothing comes before this", self._now, "A !X B: no X between A and B")
            parts.append(self._element())
        if not parts:
            self._refuse("an element is missing", self._now, "a symbol or a group stands here")
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def _element(self) -> Node:
        never: set[str] = set()
        first = self._now
        while self._now.text == "!":
            self._take()
            if self._now.kind != "symbol":
                self._refuse("'!' stands before a symbol", self._now, "A !X B: no X between A and B")
            never.add(self._symbol().name)
        if never and (self._now.kind == "end" or self._now.text in ("|", ")")):
            self._refuse("nothing comes after this", first, "A !X B: no X between A and B")
        part = self._quantified(self._atom())
        if never and shortest(part) == 0:
            self._refuse(
                "what follows '!' may be missing",
                first,
                "make a group of both: A (!X B)?",
            )
        return Guarded(part, frozenset(never)) if never else part

    def _atom(self) -> Node:
        if self._now.kind == "symbol":
            return self._symbol()
        token = self._take()
        if token.text != "(":
            self._refuse(
                f"'{token.text}' has nothing to repeat", token, "a symbol or a group comes before it"
            )
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse("groups are nested too deeply", token, f"at most {DEEPEST}")
        inside = self._sequence()
        if self._now.text != ")":
            self._refuse("this group is not closed", token, "add a ')'")
        self._take()
        self._depth -= 1
        return inside

    def _symbol(self) -> Symbol:
        token = self._take()
        if token.text not in self._defined:
            hint = known_names(token.text, self._defined) if self._defined else 'define={"F": "amount > 500"}'
            if len(token.text) > 1 and all(letter in self._defined for letter in token.text):
                hint = f"symbols are separated by spaces: {' '.join(token.text)}"
            self._refuse(f"no symbol '{token.text}' is defined", token, hint)
        return Symbol(token.text)

    def _quantified(self, part: Node) -> Node:
        token = self._now
        if token.text in _QUANTIFIERS:
            least, most = _QUANTIFIERS[token.text]
        elif token.kind == "bounds":
            least, most = self._bounds(token)
        else:
            return part
        self._take()
        if self._now.text in _QUANTIFIERS or self._now.kind == "bounds":
            self._refuse("two quantifiers in a row", self._now, "one is enough, or use a group")
        return Repeat(part, least, most)

    def _bounds(self, token: _Token) -> tuple[int, int | None]:
        found = _BOUNDS.fullmatch(token.text)
        if found is None:
            self._refuse(f"'{token.text}' is no quantifier", token, "write {3}, {3,} or {3,5}")
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if most is not None and (most < least or most == 0):
            self._refuse(f"'{token.text}' allows nothing", token, "the second number is the larger one")
        if max(least, most or 0) > MOST_REPEATS:
            self._refuse(f"'{token.text}' is too much", token, f"at most {MOST_REPEATS} repeats")
        return least, most

    def _read(self) -> list[_Token]:
        tokens, at = [], 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None:
                place = at + len(self._text[at:]) - len(self._text[at:].lstrip())
                wrong = _Token("mark", self._text[place], place + 1)
                self._refuse(
                    f"'{wrong.text}' has no meaning here",
                    wrong,
                    "symbols, ( ) | ! ? * + and {n}, {n,}, {n,m}",
                )
            kind = found.lastgroup or ""
            tokens.append(_Token(kind, found[kind], found.start(kind) + 1))
            at = found.end()
        return [*tokens, _Token("end", "", len(self._text.rstrip()) + 1)]

    def _refuse(self, problem: str, token: _Token, hint: str) -> NoReturn:
        raise AppError(
            f"{self._what}: {problem}, at position {token.at} of '{self._text}'", where=self._where, hint=hint
        )
