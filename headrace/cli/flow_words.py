"""Flows in the words of the tables that commands print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flow_name(flow: Mapping[str, Any]) -> str:
    """With its side, where it has two."""
    return f"{flow['flow']}, {flow['side']}" if flow["side"] else str(flow["flow"])


def outcomes_in_words(outcomes: Mapping[str, int]) -> str:
    """`12 matched + 3 unmatched + 1 pending`"""
    return " + ".join(f"{count:,} {outcome.replace('_', ' ')}" for outcome, count in outcomes.items())
