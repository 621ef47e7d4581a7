"""What enrichment found, counted with the batch; how fresh its tables are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.contracts.json_schema import json_schema
from headrace.contracts.model import Contract
from headrace.enrich import Enrich, enriched_contract
from headrace.enricher import OUTCOMES
from headrace.gate.ledger import Batch
from headrace.store.connection import Connection
from headrace.store.dimensions import Dimensions, note_tables
from headrace.store.flow_totals import FlowTotals
from headrace.store.outbox import account
from headrace.store.source_accounts import Watermarks


class EnrichFold:
    """The accounts of one enrichment; its records are published by the gate itself."""

    def __init__(
        self, app: str, query: str, contract: Contract, enrich: Enrich, dimensions: Dimensions
    ) -> None:
        self._app, self._query, self._contract, self._enrich = app, query, contract, enrich
        self._tables = [dimensions.live(table) for table in enrich.tables]
        self._totals = FlowTotals(app, query, enrich.fold)

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        self._totals.begin(connection, lambda: {"before": sum(self._outcomes(connection).values())})
        note_tables(connection, self._app, self._tables)

    def merge(
        self, connection: Connection, batch: Batch, part: Mapping[str, int], before: Watermarks
    ) -> None:
        accepted = sum(entry.accepted for entry in batch.entries)
        enriched = sum(part.values())
        account(connection, self._query, batch.batch_id, self._enrich.fold, "", (accepted, enriched, 0))
        self._totals.add(connection, batch.batch_id, accepted=accepted, taken=enriched)
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO headrace.enrich_totals AS known VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (app, enrich, outcome) DO UPDATE SET count = known.count + excluded.count",
                [(self._app, self._enrich.name, outcome, part.get(outcome, 0)) for outcome in OUTCOMES],
            )
        note_tables(connection, self._app, self._tables)

    def advance(self, connection: Connection, before: Watermarks, after: Watermarks, part: Any) -> None:
        """Nothing waits here."""

    def forget_old(self, connection: Connection) -> None:
        """The ledger of flows goes with the batches."""

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        """Write the contract of the enriched topic as JSON Schema; the events are written by the gate."""
        schema = json_schema(enriched_contract(self._contract, self._enrich))
        file = folder / f"{self._enrich.name}.schema.json"
        file.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n")
        return self._outcomes(connection)

    def _outcomes(self, connection: Connection) -> dict[str, int]:
        found = connection.execute(
            "SELECT outcome, count FROM headrace.enrich_totals WHERE app = %s AND enrich = %s",
            (self._app, self._enrich.name),
        )
        return {**dict.fromkeys(OUTCOMES, 0), **dict(found.fetchall())}
