"""Whatever is in a file, reading it ends in a contract or in a ContractError."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.contracts import load_contract
from headrace.contracts.custom import OF_CONTRACT, OF_FIELD
from headrace.errors import ContractError
from tests.contracts.files import TURANMART, load

DOCS = Path(__file__).parents[2] / "docs" / "contracts.md"
JUNK: list[Any] = [
    None,
    "",
    "x",
    0,
    -1,
    10**30,
    1.5,
    True,
    [],
    {},
    [None],
    [[]],
    {"": {}},
    [{}],
    {"x": [1]},
    "\u2028",
]
ORDERS: dict[str, Any] = yaml.safe_load((TURANMART / "orders.yaml").read_text())


def _places(node: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place, *(inner for key, child in children for inner in _places(child, (*place, key)))]


PLACES = _places(ORDERS)[1:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), st.sampled_from(["replace", "delete", "add"]), st.sampled_from(JUNK))
def test_junk_anywhere_in_a_contract(folder: Path, place: tuple[Any, ...], how: str, junk: Any) -> None:
    data = copy.deepcopy(ORDERS)
    holder: Any = data
    for step in place[:-1]:
        holder = holder[step]
    if how == "replace":
        holder[place[-1]] = junk
    elif how == "delete":
        del holder[place[-1]]
    elif isinstance(holder, list):
        holder.append(junk)
    else:
        holder["unheard"] = junk
    try:
        assert load(folder, yaml.safe_dump(data)).name
    except ContractError as error:
        assert "taps.yaml" in str(error)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes(folder: Path, content: bytes) -> None:
    (folder / "any.yaml").write_bytes(content)
    with pytest.raises(ContractError):
        load_contract(folder / "any.yaml")


def test_the_example_in_the_documentation_is_a_contract(tmp_path: Path) -> None:
    example = DOCS.read_text().split("```yaml\n")[1].split("```")[0]
    contract = load(tmp_path, example)
    assert (contract.name, contract.event_id, contract.key, contract.owner) == (
        "taps",
        "tap_id",
        "visitor",
        "plumbing",
    )


@pytest.mark.parametrize("name", [*OF_CONTRACT, *OF_FIELD])
def test_every_word_of_ours_is_documented(name: str) -> None:
    assert f"| `{name}` |" in DOCS.read_text()
