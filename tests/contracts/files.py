"""Contract files for tests: a small valid one, and ways to change it."""

from __future__ import annotations

from pathlib import Path

from headrace.contracts import Contract, load_contract
from headrace.errors import ContractError

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart" / "contracts"

BASE = """\
kind: DataContract
apiVersion: v3.2.0
id: taps
version: 1.2.3
schema:
  - name: taps
    properties:
      - name: id
        logicalType: string
        required: true
        primaryKey: true
      - name: at
        logicalType: timestamp
        required: true
      - name: who
        logicalType: string
        required: true
        partitioned: true
      # fields
# contract
"""


def text(fields: str = "", contract: str = "", base: str = BASE) -> str:
    """The base contract with more fields (a list item at no indent) and more top-level keys."""
    block = "".join(f"      {line}\n" for line in fields.splitlines())
    return base.replace("      # fields\n", block).replace("# contract\n", contract)


def load(folder: Path, content: str, name: str = "taps.yaml") -> Contract:
    file = folder / name
    file.write_text(content)
    return load_contract(file)


def error_of(folder: Path, content: str) -> str:
    """The message of the one error that the content must raise, with the file called by its name alone."""
    try:
        contract = load(folder, content)
    except ContractError as error:
        return str(error).replace(f"{folder}/", "")
    raise AssertionError(f"no error, but {contract}")


def line_of(content: str, part: str) -> int:
    """The number of the only line that holds the part."""
    (number,) = [n for n, line in enumerate(content.splitlines(), 1) if part in line]
    return number
