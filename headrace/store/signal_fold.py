"""Signals in the store: features from what is remembered, scores, decisions, all with the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psycopg import sql

from headrace.dimensions import Versions
from headrace.flows.features import Arrived, features_of
from headrace.flows.signals import ResolvedSignals, check_table_columns
from headrace.flows.taken import Taken, TakenRow
from headrace.gate.ledger import Batch
from headrace.signals import ALLOW, Feature
from headrace.store.connection import Connection
from headrace.store.dimensions import Dimensions, note_tables
from headrace.store.flow_totals import FlowTotals
from headrace.store.outbox import account, open_lane, put
from headrace.store.signal_export import export, record_of
from headrace.store.signal_scores import STAGED, Scores
from headrace.store.signal_tables import (
    activity_name,
    define,
    memory_name,
    shown_columns,
    table_name,
)
from headrace.store.source_accounts import Watermarks
from headrace.store.times import to_time

SIDE = ""


class SignalFold:
    """One declaration of signals on one source."""

    def __init__(
        self, app: str, query: str, resolved: ResolvedSignals, dimensions: Dimensions | None = None
    ) -> None:
        self._app, self._query, self._resolved = app, query, resolved
        self._signals = resolved.signals
        self._plan = resolved.plan
        self._scores = Scores(resolved)
        self._table = table_name(app, self._signals)
        self._memory = memory_name(app, self._signals)
        self._totals = FlowTotals(app, query, resolved.fold)
        known = dimensions or Dimensions()
        self._tables = {table.name: known.live(table) for table in self._signals.tables}
        self._places = {name: n for n, name in enumerate(resolved.want.columns)}

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        columns = {name: live.current().columns for name, live in self._tables.items()}
        check_table_columns(self._signals, columns)
        anew = define(connection, self._app, self._resolved)
        self._totals.begin(connection, lambda: self._there(connection), anew=anew)
        if self._signals.topic:
            open_lane(connection, self._query, self._signals.topic)
        self._scores.check(connection)

    def merge(
        self, connection: Connection, batch: Batch, part: Taken, before: Watermarks, after: Watermarks
    ) -> None:
        horizon = self._horizon(before)
        late = [row for row in part.rows if horizon is not None and row.event_time < horizon]
        if not self._signals.remembers:
            late = []  # what looks at nothing misses nothing
        account(
            *(connection, self._query, batch.batch_id, self._resolved.fold, SIDE),
            (batch.accepted, len(part.rows), len(late)),
        )
        note_tables(connection, self._app, self._tables.values())
        counts = {"accepted": batch.accepted, "taken": len(part.rows), "late": len(late)}
        if not part.rows:
            self._totals.add(connection, batch.batch_id, **counts)
            return
        new = [self._arrived(row) for row in part.rows]
        features = features_of(self._plan, [*self._remembered(connection, new), *new])
        if self._signals.remembers:
            self._remember(connection, new)
        tables = {name: live.current() for name, live in self._tables.items()}
        incomplete = {(row.partition, row.offset) for row in late}
        rows = [
            self._row(n, row, features[row.partition, row.offset], tables, incomplete)
            for n, row in enumerate(part.rows)
        ]
        self._scores.compute(connection, rows)
        scored = self._insert(connection)
        self._scores.drop(connection)
        self._publish(connection, scored)
        counts["suspicious"] = self._count(connection, scored)
        counts["again"] = len(new) - len(scored)
        counts["remembered"] = len(new) if self._signals.remembers else 0
        self._totals.add(connection, batch.batch_id, **counts)

    def advance(self, connection: Connection, before: Watermarks, after: Watermarks, part: Any) -> None:
        """What no event within the lateness can look back at any more is forgotten."""
        horizon = self._horizon(after)
        if horizon is not None and horizon != self._horizon(before):
            gone = connection.execute(
                sql.SQL("DELETE FROM {} WHERE event_time <= %s").format(self._memory),
                (horizon - self._signals.memory_us,),
            )
            self._totals.move(connection, remembered=-gone.rowcount)

    def forget_old(self, connection: Connection) -> None:
        activity = activity_name(self._app, self._signals)
        gone = []
        for table, column, counted in (
            (self._table, "event_time", "count(*)"),
            (activity, "last_time", "coalesce(sum(suspicious), 0)::bigint"),
        ):
            found = connection.execute(
                sql.SQL(
                    "WITH gone AS (DELETE FROM {} WHERE {} < (SELECT watermark FROM headrace.watermarks"
                    " WHERE query = %s AND time = 'event') - %s RETURNING *) SELECT {} FROM gone"
                ).format(table, sql.Identifier(column), sql.SQL(counted)),
                (self._query, self._signals.retain),
            ).fetchone()
            gone.append(found[0] if found else 0)
        self._totals.move(connection, forgotten=gone[0], suspicious=-gone[1])

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        return export(connection, self._app, self._query, self._resolved, folder)

    def _there(self, connection: Connection) -> dict[str, int]:
        """What the tables of signals that were never counted hold; all of it was taken once."""
        statement = sql.SQL(
            "SELECT (SELECT coalesce(sum(count), 0)::bigint FROM headrace.signal_totals"
            " WHERE app = %s AND signals = %s), (SELECT count(*) FROM {}), (SELECT count(*) FROM {}),"
            " (SELECT coalesce(sum(suspicious), 0)::bigint FROM {})"
        ).format(self._table, self._memory, activity_name(self._app, self._signals))
        found = connection.execute(statement, (self._app, self._signals.name)).fetchone()
        scored, rows, remembered, suspicious = found or (0, 0, 0, 0)
        return {
            "before": scored,
            "forgotten": scored - rows,
            "remembered": remembered,
            "suspicious": suspicious,
        }

    def _horizon(self, watermarks: Watermarks) -> int | None:
        """An event from before this woke up with its partition: what it looks back at may be forgotten."""
        watermark = watermarks.get("event")
        return None if watermark is None else watermark - self._resolved.lateness_us

    def _text(self, row: TakenRow, kind: str, name: str) -> str | None:
        return row.values[self._places[f"{kind} {name}"]]

    def _arrived(self, row: TakenRow) -> Arrived:
        key = self._text(row, "label", self._signals.key)
        assert key is not None, "events without a key are not taken"
        values = tuple(
            value
            for column, value in zip(self._places, row.values, strict=True)
            if column.startswith("value ")
        )
        return Arrived(
            key, row.log_time, row.partition, row.offset, row.event_time, row.event_id, values, True
        )

    def _remembered(self, connection: Connection, new: Sequence[Arrived]) -> list[Arrived]:
        if not self._signals.remembers:
            return []
        oldest = min(event.event_time for event in new) - self._signals.memory_us
        rows = connection.execute(
            sql.SQL(
                'SELECT key, log_time, partition, "offset", event_time, event_id, "values" FROM {}'
                " WHERE key = ANY(%s) AND event_time > %s AND event_time <= %s"
            ).format(self._memory),
            (sorted({event.key for event in new}), oldest, max(event.event_time for event in new)),
            prepare=False,  # a plan for any keys and times at all would look through all that is remembered
        )
        return [Arrived._make((*row[:6], tuple(row[6]), False)) for row in rows]

    def _remember(self, connection: Connection, new: Sequence[Arrived]) -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy(
                sql.SQL(
                    'COPY {} (key, log_time, partition, "offset", event_time, event_id, "values") FROM STDIN'
                ).format(self._memory)
            ) as copy,
        ):
            for event in new:
                copy.write_row((*event[:6], list(event.values)))

    def _row(
        self,
        n: int,
        row: TakenRow,
        found: Sequence[Any],
        tables: Mapping[str, Versions],
        incomplete: set[tuple[int, int]],
    ) -> tuple[Any, ...]:
        """A row of the staging table: about the event, labels, features in the order of the declaration."""
        signals = self._signals
        with_memory = iter(found)
        features: list[Any] = []
        for name, feature in signals.features.items():
            match feature.kind:
                case "own":
                    features.append(self._text(row, "own", name))
                case "dimension":
                    features.append(self._looked_up(row, feature, tables))
                case _:
                    features.append(next(with_memory))
        return (
            *(n, f"{signals.name}:{row.event_id}", row.event_id, row.partition, row.offset),
            *(to_time(row.event_time), to_time(row.log_time)),
            *(self._text(row, "label", name) for name in signals.labels),
            *features,
            (row.partition, row.offset) not in incomplete,
        )

    def _looked_up(self, row: TakenRow, feature: Feature, tables: Mapping[str, Versions]) -> Any:
        name, _, column = feature.expression.partition(".")
        versions = tables[name]
        found = versions.as_of(self._text(row, "table", name), row.event_time)
        return None if found is None else found[1][versions.columns.index(column)]

    def _insert(self, connection: Connection) -> list[dict[str, Any]]:
        """Rows that are new. The same event id again, long after the gate forgot it, is the same signal."""
        signals = self._signals
        versions = [signals.scorer.version, signals.shadow.version if signals.shadow else None]
        plain = [c for c in shown_columns(signals) if "decision" not in c and "version" not in c]
        columns = [*plain, "decision", "shadow_decision", "version", "shadow_version"]
        no_shadow = sql.SQL("NULL")
        cursor = connection.execute(
            sql.SQL(
                "INSERT INTO {table} ({columns}) SELECT {plain}, {decision}, {shadow}, %s, %s FROM {staged}"
                " ORDER BY __n ON CONFLICT (id) DO NOTHING RETURNING {columns}"
            ).format(
                table=self._table,
                columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
                plain=sql.SQL(", ").join(map(sql.Identifier, plain)),
                decision=self._decision("score"),
                shadow=self._decision("shadow_score") if signals.shadow else no_shadow,
                staged=STAGED,
            ),
            versions,
        )
        return [dict(zip(columns, row, strict=True)) for row in cursor]

    def _decision(self, score: str) -> sql.Composed:
        """The first threshold that is reached; without a score there is nothing to hold against an event."""
        cases = sql.SQL(" ").join(
            sql.SQL("WHEN {} >= {} THEN {}").format(
                sql.Identifier(score), sql.Literal(threshold), sql.Literal(decision)
            )
            for decision, threshold in self._signals.decisions
        )
        return sql.SQL("CASE {} ELSE {} END").format(cases, sql.Literal(ALLOW))

    def _publish(self, connection: Connection, scored: list[dict[str, Any]]) -> None:
        signals = self._signals
        if not signals.topic:
            return
        chosen = [row for row in scored if signals.publish == "all" or row["decision"] != ALLOW]
        put(
            *(connection, self._query, signals.topic),
            ((row[signals.key], record_of(signals, row)) for row in chosen),
        )

    def _count(self, connection: Connection, scored: list[dict[str, Any]]) -> int:
        """By decision, and by whose they are; returns how many were suspicious."""
        connection.execute(
            "INSERT INTO headrace.signal_totals"
            " SELECT %s, %s, decision, count(*) FROM unnest(%s::text[]) AS d (decision) GROUP BY decision"
            " ON CONFLICT (app, signals, decision)"
            " DO UPDATE SET count = headrace.signal_totals.count + excluded.count",
            (self._app, self._signals.name, [row["decision"] for row in scored]),
        )
        who = self._signals.activity_by
        suspicious = [row for row in scored if row["decision"] != ALLOW and row[who] is not None]
        connection.execute(
            sql.SQL(
                "INSERT INTO {table} AS known SELECT who, count(*), min(at), max(at)"
                " FROM unnest(%s::text[], %s::timestamptz[]) AS s (who, at) GROUP BY who"
                " ON CONFLICT ({who}) DO UPDATE SET suspicious = known.suspicious + excluded.suspicious,"
                " first_time = least(known.first_time, excluded.first_time),"
                " last_time = greatest(known.last_time, excluded.last_time)"
            ).format(table=activity_name(self._app, self._signals), who=sql.Identifier(who)),
            ([row[who] for row in suspicious], [row["event_time"] for row in suspicious]),
        )
        return len(suspicious)
