"""From a contract file to a Contract, or to one error that names everything wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast, get_args

from open_data_contract_standard.model import OpenDataContractStandard, SchemaObject

from headrace.contracts.custom import OF_CONTRACT, Custom, read_custom
from headrace.contracts.fields import FieldReader
from headrace.contracts.identity import (
    STREAM_AT,
    read_event_id,
    read_event_time,
    read_key,
    refuse_masked_identity,
)
from headrace.contracts.model import Contract, Role, Status
from headrace.contracts.odcs import is_covered, read_odcs
from headrace.contracts.problems import Place, contract_error, did_you_mean, joined, shown
from headrace.contracts.promises import read_duration, read_promises
from headrace.contracts.yaml_source import YamlSource, read_yaml
from headrace.errors import ContractError

_DEFAULTS = {
    "lateness": timedelta(minutes=10),
    "maxFutureSkew": timedelta(minutes=5),
    "dedupeHorizon": timedelta(hours=1),
    "idleAfter": timedelta(minutes=1),
}
_MAY_BE_ZERO = ("lateness", "maxFutureSkew")
_DEFAULT_PARTITIONS = 4
_DEFAULT_RETENTION = timedelta(days=7)
_VERSION = re.compile(r"v?(?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){2}")
_STREAM = re.compile(r"[a-z][a-z0-9_]{0,47}")
_ROOT: Place = ()


def load_contract(path: str | Path) -> Contract:
    """Read one contract file. Raises ContractError with every problem, its file and its line."""
    source = read_yaml(Path(path))
    odcs, problems = read_odcs(source)
    problems = source.problems + problems
    if odcs is None:
        raise contract_error(source.file, source.lines, problems)
    reading = _ContractReader(source, FieldReader(source.lines))
    contract = reading.contract(odcs)
    problems += [p for p in reading.reader.problems if not is_covered(p, problems)]
    if problems:
        raise contract_error(source.file, source.lines, problems)
    return contract


def load_contracts(folder: str | Path) -> dict[str, Contract]:
    """Every contract of a folder by stream name. Raises one ContractError for all its files."""
    contracts: dict[str, Contract] = {}
    errors: list[ContractError] = []
    for file in contract_files(folder):
        try:
            contract = load_contract(file)
        except ContractError as error:
            errors.append(error)
            continue
        first = contracts.setdefault(contract.name, contract)
        if first is not contract:
            what = f"the stream '{contract.name}' is already described by {shown(first.file)}"
            errors.append(ContractError(what, where=shown(file), hint="a stream has one contract"))
    if errors:
        raise joined(errors)
    return contracts


def contract_files(folder: str | Path) -> list[Path]:
    folder = Path(folder)
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ContractError(f"cannot read the folder of contracts: {reason}", where=shown(folder)) from None
    if not files:
        raise ContractError(
            "no contract in this folder", where=shown(folder), hint="add a .yaml file per stream"
        )
    return files


@dataclass
class _ContractReader:
    source: YamlSource
    reader: FieldReader

    def contract(self, odcs: OpenDataContractStandard) -> Contract:
        fault = self.reader.fault
        if not (odcs.apiVersion or "v3").startswith("v3"):
            fault(("apiVersion",), f"'{odcs.apiVersion}' is too old", "Headrace reads ODCS v3")
        version = odcs.version or "0.0.0"
        if not _VERSION.fullmatch(version):
            fault(("version",), f"'{version}' is not a version", "write it like 1.4.0")
            version = "0.0.0"
        stream = self._stream(odcs)
        custom = read_custom(odcs.customProperties, _ROOT, OF_CONTRACT, self.reader.problems)
        read_custom(stream.customProperties, STREAM_AT, (), self.reader.problems)
        fields = self.reader.fields(stream.properties, STREAM_AT)
        properties = stream.properties or []
        promises = read_promises(odcs.slaProperties, self.reader)
        contract = Contract(
            name=stream.name or "",
            version=version,
            fields=fields,
            event_id=read_event_id(properties, fields, self.reader),
            event_time=read_event_time(custom.get("eventTime"), fields, self.reader),
            key=read_key(properties, fields, self.reader),
            lateness=self._duration(custom, "lateness"),
            max_future_skew=self._duration(custom, "maxFutureSkew"),
            dedupe_horizon=self._duration(custom, "dedupeHorizon"),
            idle_after=self._duration(custom, "idleAfter"),
            partitions=self._partitions(custom.get("partitions")),
            retention=promises.retention or _DEFAULT_RETENTION,
            compacted=self._compacted(custom.get("compacted")),
            status=self._status(odcs),
            description=_described(odcs, stream),
            owner=_owner(odcs),
            roles=tuple(Role(r.role, r.access or "read") for r in odcs.roles or [] if r.role),
            freshness=promises.freshness,
            latency=promises.latency,
            error_rate=promises.error_rate,
            file=self.source.file,
        )
        refuse_masked_identity(contract, self.reader)
        if stream.physicalName not in (None, contract.topics.raw) and _VERSION.fullmatch(odcs.version or ""):
            what = f"'{stream.physicalName}' is not the raw topic of this version"
            fault((*STREAM_AT, "physicalName"), what, f"write {contract.topics.raw}, or leave it out")
        return contract

    def _stream(self, odcs: OpenDataContractStandard) -> SchemaObject:
        if not odcs.schema_:
            self.reader.fault(
                ("schema",), "is missing", "describe the stream's fields in schema[0].properties"
            )
            return SchemaObject()
        if len(odcs.schema_) > 1:
            self.reader.fault(("schema", 1), "a contract describes one stream", "one file per stream")
        stream = odcs.schema_[0]
        if not _STREAM.fullmatch(stream.name or ""):
            what = f"'{stream.name}' cannot name a stream: it becomes a topic and a table"
            self.reader.fault((*STREAM_AT, "name"), what, "use up to 48 of a-z, 0-9 and '_', a letter first")
        return stream

    def _duration(self, custom: dict[str, Custom], name: str) -> timedelta:
        if name not in custom:
            return _DEFAULTS[name]
        value, place = cast(str, custom[name].value), custom[name].place
        return read_duration(value, place, name in _MAY_BE_ZERO, self.reader)

    def _partitions(self, custom: Custom | None) -> int:
        if custom is None:
            return _DEFAULT_PARTITIONS
        count = custom.value
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 10_000:
            self.reader.fault(custom.place, f"'{count}' is not a number of partitions", "from 1 to 10000")
            return _DEFAULT_PARTITIONS
        return count

    def _compacted(self, custom: Custom | None) -> bool:
        if custom is not None and not isinstance(custom.value, bool):
            self.reader.fault(custom.place, f"'{custom.value}' is neither true nor false")
        return custom is not None and custom.value is True

    def _status(self, odcs: OpenDataContractStandard) -> Status:
        status, known = odcs.status or "active", get_args(Status)
        if status not in known:
            what = f"'{status}' is not one of {', '.join(known)}"
            self.reader.fault(("status",), what, did_you_mean(status, known))
        return cast(Status, status)


def _described(odcs: OpenDataContractStandard, stream: SchemaObject) -> str:
    purpose = odcs.description.purpose if odcs.description else None
    return (purpose or stream.description or "").strip()


def _owner(odcs: OpenDataContractStandard) -> str:
    team = odcs.team
    if team is None:
        return ""
    members = team if isinstance(team, list) else team.members or []
    leading = [m for m in members if (m.role or "").lower() in ("owner", "data owner")] or members
    name = None if isinstance(team, list) else team.name
    return name or (leading[0].username or "" if leading else "")
