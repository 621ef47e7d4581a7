"""Contracts: one ODCS v3 file per event stream, read into plain values."""

from headrace.contracts.durations import parse_duration
from headrace.contracts.model import Contract, Field, Mask, Role, Rules, Topics, Type
from headrace.contracts.reader import load_contract, load_contracts

__all__ = [
    "Contract",
    "Field",
    "Mask",
    "Role",
    "Rules",
    "Topics",
    "Type",
    "load_contract",
    "load_contracts",
    "parse_duration",
]
