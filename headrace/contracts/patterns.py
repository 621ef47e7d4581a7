"""Patterns run as Java regular expressions; these checks find what Java would refuse, without a JVM."""

from __future__ import annotations

import re
import warnings

_REPEAT = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_GROUP_ONLY_IN_PYTHON = re.compile(r"\(\?(?:P|\(|[a-zA-Z]*[aL])")
_ESCAPE_ONLY_IN_PYTHON = {"U": "\\U", "0": "\\0"}


def pattern_fault(pattern: str) -> str | None:
    """Why the pattern cannot be used, or None. A pattern must mean the same in Java and in Python."""
    try:
        with warnings.catch_warnings():
            # Python warns where it may one day read nested sets as Java does; the scan below refuses them.
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    return _refused_by_java(pattern)


def _refused_by_java(pattern: str) -> str | None:
    at, in_set = 0, False
    while at < len(pattern):
        char, rest = pattern[at], pattern[at:]
        if char == "\\":
            if rest[1:2] in _ESCAPE_ONLY_IN_PYTHON:
                return f"'{_ESCAPE_ONLY_IN_PYTHON[rest[1]]}' means something else in Java"
            at += 2
            continue
        if in_set:
            if char == "]":
                in_set = False
            elif char == "[" or rest.startswith("&&"):
                return f"'{rest[:2] if char == '&' else char}' inside [...] is special in Java: escape it"
        elif char == "[":
            in_set = True
            at += 2 if rest.startswith("[^") else 1
            if pattern[at : at + 1] == "]":
                return "']' at the start of [...] is read differently by Java: escape it"
            continue
        elif char == "{":
            repeat = _REPEAT.match(rest)
            if repeat is None:
                return "'{' starts a repetition in Java: escape it, or write both limits"
            at += repeat.end()
            continue
        elif only_python := _GROUP_ONLY_IN_PYTHON.match(rest):
            return f"'{only_python[0]}' is known to Python but not to Java"
        at += 1
    return None
