"""The promises of a contract: read, refused when they mean nothing, compared."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.contracts import load_contracts
from headrace.contracts.evolution import compare
from headrace.contracts.summary import summary
from tests.contracts.files import TURANMART, error_of, load, text


def sla(*entries: str) -> str:
    return text(contract="slaProperties: [" + ", ".join(entries) + "]\n")


def test_promises_are_read(tmp_path: Path) -> None:
    contract = load(
        tmp_path,
        sla(
            "{property: freshness, value: 30, unit: s}",
            "{property: latency, value: 2 minutes}",
            "{property: errorRate, value: 0.5, unit: percent}",
            "{property: frequency, value: 1, unit: d}",
        ),
    )
    assert (contract.freshness, contract.latency) == (timedelta(seconds=30), timedelta(minutes=2))
    assert contract.error_rate == 0.005
    words = [line.split() for line in summary(contract).splitlines()]
    assert ["freshness", "30", "seconds"] in words and ["error", "rate", "0.5", "percent"] in words


def test_a_contract_may_promise_nothing(tmp_path: Path) -> None:
    contract = load(tmp_path, text())
    assert (contract.freshness, contract.latency, contract.error_rate) == (None, None, None)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{property: freshnes, value: 3, unit: s}", "'freshnes' is not known"),
        ("{property: freshness, value: 0, unit: s}", "must be longer than zero"),
        ("{property: latency, value: soon}", "'soon' is not a duration"),
        ("{property: errorRate, value: 3}", "'3' is not a percentage"),
        ("{property: errorRate, value: 101, unit: percent}", "'101 percent' is not a percentage"),
    ],
)
def test_what_promises_nothing_is_an_error(tmp_path: Path, entry: str, said: str) -> None:
    assert said in error_of(tmp_path, sla(entry))


def test_a_promise_is_given_once(tmp_path: Path) -> None:
    twice = "{property: latency, value: 3, unit: s}"
    assert "the latency is given twice" in error_of(tmp_path, sla(twice, twice))


def test_a_changed_promise_is_operational() -> None:
    old = load_contracts(TURANMART)["orders"]
    new = replace(old, freshness=None, error_rate=0.5)
    changes = {change.path: (change.what, change.level) for change in compare(old, new).changes}
    assert changes == {
        "freshness": ("1 minute → none", "minor"),
        "errorRate": ("3 percent → 50 percent", "minor"),
    }
