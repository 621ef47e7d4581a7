"""What became of the events of a flow, in sums that outlive the ledger and the rows of its tables.

Sessions, signals and enrichment are counted here, in the transaction of the batch; joins and patterns have
tables of their own for it. Some sums go up and down: they say what a table holds, so that an audit can look
whether it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.store.connection import Connection

_ADD = """
    INSERT INTO headrace.flow_totals AS t (app, query, flow, outcome, count, first_batch)
    SELECT %(app)s, %(query)s, %(flow)s, outcome, added, %(batch)s
    FROM unnest(%(outcomes)s::text[], %(counts)s::bigint[]) AS a (outcome, added)
    ON CONFLICT (query, flow, outcome) DO UPDATE SET
        count = t.count + excluded.count, first_batch = coalesce(t.first_batch, excluded.first_batch)
"""


class FlowTotals:
    """The sums of one flow, by outcome. `first_batch` is the first that was counted."""

    def __init__(self, app: str, query: str, flow: str) -> None:
        self._key = {"app": app, "query": query, "flow": flow}

    def begin(
        self, connection: Connection, there: Callable[[], Mapping[str, int]], *, anew: bool = False
    ) -> None:
        """If nothing is counted yet, with what is `there` already; `anew`: its tables have just been made."""
        if anew:
            connection.execute(
                "DELETE FROM headrace.flow_totals WHERE query = %(query)s AND flow = %(flow)s", self._key
            )
        known = connection.execute(
            "SELECT 1 FROM headrace.flow_totals WHERE query = %(query)s AND flow = %(flow)s LIMIT 1",
            self._key,
        ).fetchone()
        if known is None:
            self._write(connection, None, there())

    def add(self, connection: Connection, batch_id: int, **counts: int) -> None:
        """What a batch has brought."""
        self._write(connection, batch_id, counts)

    def move(self, connection: Connection, **counts: int) -> None:
        """What has changed by the mere passing of time."""
        moved = {outcome: count for outcome, count in counts.items() if count}
        if moved:
            self._write(connection, None, moved)

    def _write(self, connection: Connection, batch_id: int | None, counts: Mapping[str, int]) -> None:
        given = {"batch": batch_id, "outcomes": list(counts), "counts": list(counts.values())}
        connection.execute(_ADD, {**self._key, **given})
