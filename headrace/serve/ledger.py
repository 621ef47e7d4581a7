"""The ledger, batch by batch, and the audit of it against the broker's offsets."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

from headrace.connections import Connections, query_name
from headrace.errors import DataError
from headrace.ops.audit import audit_source
from headrace.ops.load import LoadedApp
from headrace.serve.database import Database
from headrace.serve.parameters import Page
from headrace.serve.problems import unavailable
from headrace.serve.shared import Shared

AUDIT_SECONDS = 10.0
FINDINGS = 100
_PAGE = """
    SELECT part.* FROM unnest(%(queries)s::text[]) AS wanted (query) CROSS JOIN LATERAL (
        SELECT b.query, b.batch_id, l.partition, l.first_offset, l.end_offset, l.received, l.accepted,
               l.rejected, l.late, l.duplicate, l.reasons, l.clock, b.started_at, b.finished_at
        FROM headrace.batches b JOIN headrace.ledger l USING (query, batch_id)
        WHERE b.query = wanted.query AND b.finished_at >= %(since)s AND b.finished_at < %(until)s
          AND b.finished_at <= %(at)s::timestamptz
          AND (b.finished_at, b.query, b.batch_id, l.partition)
              < (%(at)s::timestamptz, %(query)s, %(batch_id)s, %(partition)s)
        ORDER BY b.finished_at DESC, b.batch_id DESC, l.partition DESC LIMIT %(limit)s
    ) AS part
    ORDER BY finished_at DESC, query DESC, batch_id DESC, partition DESC LIMIT %(limit)s
"""


class LedgerPages:
    def __init__(self, loaded: LoadedApp, database: Database) -> None:
        self._loaded, self._database = loaded, database

    async def page(
        self, streams: list[str], since: datetime | None, until: datetime | None, page: Page
    ) -> dict[str, Any]:
        """An item for each batch and partition, newest first; times are those of the commit."""
        after = page.after([datetime, str, int, int]) or ["infinity", "", 0, 0]
        streams_by_query = {query_name(self._loaded.name, stream): stream for stream in streams}
        values = dict(zip(("at", "query", "batch_id", "partition"), after, strict=True))
        values |= {"since": since or "-infinity", "until": until or "infinity"}
        found = await self._database.rows_if_there(
            _PAGE, {**values, "queries": list(streams_by_query), "limit": page.limit + 1}
        )
        found, following = page.cut(found, ("finished_at", "query", "batch_id", "partition"))
        items = [{"source": streams_by_query[row["query"]], **row} for row in found]
        return {"items": items, "next": following}


class Audits:
    """One audit at a time, in a thread of its own; those who ask meanwhile get the same one."""

    def __init__(self, loaded: LoadedApp, connections: Connections) -> None:
        self._loaded, self._connections = loaded, connections
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._shared: Shared[dict[str, Any]] = Shared(seconds=5.0)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def audit(self, streams: list[str]) -> dict[str, Any]:
        reports = []
        try:
            async with asyncio.timeout(AUDIT_SECONDS):
                for stream in streams:
                    reports.append(await self._shared.get(stream, partial(self._in_thread, stream)))
        except TimeoutError:
            raise unavailable(
                f"the audit takes longer than {AUDIT_SECONDS:.0f} s", "headrace audit"
            ) from None
        return {
            "clean": all(report["clean"] is not False for report in reports),
            "sources": reports,
            "at": datetime.now(UTC),
        }

    async def _in_thread(self, stream: str) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._audit, stream)

    def _audit(self, stream: str) -> dict[str, Any]:
        contract, source = self._loaded.contract(stream), self._loaded.source(stream)
        try:
            report = audit_source(
                *(self._loaded.name, contract, source, self._connections),
                metrics=self._loaded.accounts_of(stream),
                flows=self._loaded.flow_accounts_of(stream),
            ).to_json()
        except DataError as error:
            return {"source": stream, "clean": None, "note": error.what}
        report["findings_total"] = len(report["findings"])
        report["findings"] = report["findings"][:FINDINGS]
        return report
