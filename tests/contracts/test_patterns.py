from __future__ import annotations

import pytest

from headrace.contracts.patterns import pattern_fault

FINE = [
    "^p-[0-9]{1,9}$",
    "",
    r"^[\w.+-]+@[a-z]+\.[a-z]{2,}$",
    r"a\{b\}",
    r"[{}]",
    r"(?:a|b)(?=c)(?<!d)(?i:e)",
    r"[\[\]&]",
    r"(a)\1",
    r"\\",
    "[^a]",
    "тошкент",
]
REFUSED = [
    ("(", "not a regular expression"),
    ("a**", "not a regular expression"),
    (r"\p{L}", "not a regular expression"),
    ("(?P<x>a)", "not to Java"),
    ("(a)(?(1)b|c)", "not to Java"),
    ("(?a)b", "not to Java"),
    ("a{,3}", "starts a repetition"),
    ("{id}", "starts a repetition"),
    ("a{", "starts a repetition"),
    ("[a[b]", "special in Java"),
    ("[a&&b]", "special in Java"),
    ("[]a]", "read differently"),
    ("[^]a]", "read differently"),
    (r"\U0001F600", "means something else"),
    (r"\0", "means something else"),
]


@pytest.mark.parametrize("pattern", FINE)
def test_patterns_that_mean_the_same_in_java_and_python(pattern: str) -> None:
    assert pattern_fault(pattern) is None


@pytest.mark.parametrize(("pattern", "part"), REFUSED)
def test_patterns_that_do_not(pattern: str, part: str) -> None:
    assert part in (pattern_fault(pattern) or "")
