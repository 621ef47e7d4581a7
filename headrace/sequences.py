"""Sequences of events as trees of symbols: what a match is made of, whatever the symbols mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    name: str


@dataclass(frozen=True)
class Series:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    part: Node
    least: int
    most: int | None  # None: any number


@dataclass(frozen=True)
class Guarded:
    """The part, with none of these events between it and the event before it."""

    part: Node
    never: frozenset[str]


Node = Symbol | Series | Choice | Repeat | Guarded


def shortest(node: Node) -> int:
    """How many events the shortest match has."""
    match node:
        case Symbol():
            return 1
        case Series(parts):
            return sum(map(shortest, parts))
        case Choice(options):
            return min(map(shortest, options))
        case Repeat(part, least):
            return least * shortest(part)
        case Guarded(part):
            return shortest(part)


def needed(node: Node) -> frozenset[str]:
    """The symbols that every match has."""
    match node:
        case Symbol(name):
            return frozenset([name])
        case Series(parts):
            return frozenset().union(*map(needed, parts))
        case Choice(options):
            first, *others = map(needed, options)
            return first.intersection(*others)
        case Repeat(part, least):
            return needed(part) if least else frozenset()
        case Guarded(part):
            return needed(part)


def elements(node: Node) -> frozenset[str]:
    """The symbols that a match is made of; the others are only forbidden somewhere."""
    return frozenset(name for name, is_element in _uses(node) if is_element)


def used(node: Node) -> frozenset[str]:
    return frozenset(name for name, _ in _uses(node))


def _uses(node: Node) -> Iterator[tuple[str, bool]]:
    match node:
        case Symbol(name):
            yield name, True
        case Series(parts) | Choice(parts):
            for part in parts:
                yield from _uses(part)
        case Repeat(part):
            yield from _uses(part)
        case Guarded(part, never):
            yield from ((name, False) for name in never)
            yield from _uses(part)
