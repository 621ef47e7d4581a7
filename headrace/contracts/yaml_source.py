"""A YAML file as plain data that remembers the line of every value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

import yaml

from headrace.contracts.problems import Place, Problem, shown
from headrace.errors import ContractError

_MAX_BYTES = 4 * 1024 * 1024
_MAX_VALUES = 100_000  # aliases of aliases grow without bound in a tiny file


class _Loader(yaml.SafeLoader):
    """Only what JSON knows is special: YAML 1.1 reads `no` as false, 1:30 as 90 and a date as an object."""


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), None)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:[Tt]rue|TRUE|[Ff]alse|FALSE)$"), None
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), None)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"),
    None,
)


@dataclass
class YamlSource:
    file: Path
    data: dict[str, object]
    lines: dict[Place, int]
    problems: list[Problem]


def read_yaml(file: Path) -> YamlSource:
    """The file's top-level mapping. Raises ContractError when there is none to speak of."""
    text = _text(file)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{shown(file)}:{mark.line + 1}" if mark else shown(file)
        raise ContractError(f"not valid YAML: {error.problem or error.context}", where=where) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ContractError(
            f"not valid YAML: character {error.character!r} is not allowed", where=f"{shown(file)}:{line}"
        ) from None
    except RecursionError:
        raise ContractError("not a contract: values are nested too deeply", where=shown(file)) from None
    if node is None:
        raise ContractError("the file is empty", where=shown(file), hint="a contract is an ODCS v3 YAML file")
    if not isinstance(node, yaml.MappingNode):
        raise ContractError(
            "not a contract: the file must hold `key: value` pairs at its top level",
            where=f"{shown(file)}:{node.start_mark.line + 1}",
        )
    reading = _Reading()
    try:
        data = reading.mapping(node, ())
    except (RecursionError, _TooLarge):
        raise ContractError("not a contract: its aliases expand without end", where=shown(file)) from None
    return YamlSource(file, data, reading.lines, reading.problems)


def _text(file: Path) -> str:
    try:
        if file.is_dir():
            raise ContractError("this is a folder, not a contract file", where=shown(file))
        if file.stat().st_size > _MAX_BYTES:
            raise ContractError("the file is larger than 4 MiB", where=shown(file))
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ContractError("there is no such file", where=shown(file)) from None
    except UnicodeDecodeError as error:
        raise ContractError(
            f"not a text file: byte {error.start} is not UTF-8", where=shown(file), hint="save it as UTF-8"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ContractError(f"cannot be read: {reason}", where=shown(file)) from None


class _TooLarge(Exception):
    pass


@dataclass
class _Reading:
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, object]:
        result: dict[str, object] = {}
        first_at: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            here = (*place, key)
            if key in first_at:
                what = f"the key '{key}' is written twice, first on line {first_at[key]}"
                self.problems.append(Problem(here, what, line=line))
                continue
            first_at[key] = line
            self.lines[here] = line
            result[key] = self.value(value_node, here)
        return result

    def value(self, node: yaml.Node, place: Place) -> object:
        self.values += 1
        if self.values > _MAX_VALUES:
            raise _TooLarge
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, place)

    def scalar(self, node: yaml.Node, place: Place) -> object:
        text, kind = str(node.value), node.tag.removeprefix("tag:yaml.org,2002:")
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return text.lower() == "true"
            if kind == "int":
                return int(text)
            if kind == "float":
                return Decimal(text)  # 19.90 stays exactly that
        except (ValueError, InvalidOperation):
            self.problems.append(Problem(place, f"'{text[:40]}' is not a number"))
            return None
        if kind != "str":
            what = f"the YAML tag '{node.tag}' has no meaning here"
            self.problems.append(Problem(place, what, "write it without a tag"))
        return text
