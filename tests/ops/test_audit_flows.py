"""Every flow is accounted for: its sums, its ledger and its tables agree, and what is missing is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headrace import App, count, sum_of, table
from headrace.declared import Declared
from headrace.fates import EnrichedPart
from headrace.gate.ledger import Batch
from headrace.local.services import Services
from headrace.ops.audit_flows import flow_audits, flow_findings
from headrace.ops.audit_metrics import metric_audits
from headrace.ops.audit_outboxes import outbox_audits, outbox_findings
from headrace.ops.audit_report import FlowAudit
from headrace.store.ledger import Ledger
from headrace.store.outbox import FlowOutbox
from tests.oracle.metrics_oracle import Event
from tests.signals.stream import DerivedStream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND
KNOWN = ("c0", "c1", "c2")


def declared(folder: Path) -> Declared:
    app, file = App("flows"), folder / "levels.csv"
    file.write_text("customer,valid_from,level\n" + "".join(f"{key},,1\n" for key in KNOWN))
    levels = table("levels", key="customer", file=str(file))
    return Declared(
        sessions=(
            app.sessions(
                "visits",
                of="sales",
                key="customer",
                gap="1 minute",
                max_length="1 hour",
                where="kind = 'sale'",
                measures={"spent": sum_of("price")},
                final_after="1 minute",
                retain="10 minutes",
            ),
        ),
        patterns=(
            app.pattern(
                "many", of="sales", key="customer", where="kind = 'sale'", count=3, within="1 minute"
            ),
            app.pattern(
                "left",
                of="sales",
                key="customer",
                starts="kind = 'cart'",
                without="kind = 'sale'",
                within="1 minute",
                final_after="0 seconds",
                topic="left.v1",
            ),
        ),
        signals=(
            app.signals(
                "velocity",
                of="sales",
                key="customer",
                where="kind = 'sale'",
                memory="1 minute",
                features={"n": count()},
                score="n / 3",
                decision={"block": 0.6},
                topic="velocity.v1",
                retain="10 minutes",
            ),
        ),
        enrich=(
            app.enrich(
                "sales_known",
                of="sales",
                with_=levels,
                columns={"level": "levels.level"},
                topic="known.v1",
            ),
        ),
    )


class Flows(DerivedStream):
    """Every batch goes into the gate's ledger too, and is enriched."""

    def keep(self, batch: Batch, parts: Mapping[str, Any]) -> None:
        enriched = dict(Counter("found" if e.fields["customer"] in KNOWN else "unknown" for e in self.fed))
        ledger = Ledger(self.store, self.app, timedelta(days=1), self.accounts)
        ledger.record(batch, {**parts, "enrich.sales_known": EnrichedPart(enriched)})

    def feed(self, events: Any) -> None:
        self.fed = list(events)
        super().feed(self.fed)


def sale(n: int, seconds: float, kind: str = "sale", customer: str = "") -> Event:
    at = START + int(seconds * SECOND)
    fields = {"customer": customer or f"c{n % 4}", "kind": kind, "price": Decimal(10)}
    return Event(n % 2, n, f"e{n}", at, at, fields)


@pytest.fixture(scope="module")
def flows(
    spark: SparkSession, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flows]:
    stream = Flows(spark, services.store_url, declared(tmp_path_factory.mktemp("tables")))
    stream.feed(sale(n, n * 4, "cart" if n % 5 == 0 else "sale") for n in range(60))
    more = [sale(n, 300 + n, "other" if n % 3 == 0 else "sale") for n in range(60, 100)]
    stream.feed([*more, sale(100, 345, "cart", "c9")])
    stream.feed([sale(101, 10), sale(102, 421), sale(103, 422), sale(104, 20, "cart")])  # two come late
    yield stream


def audits(connection: Any, query: str) -> dict[str, FlowAudit]:
    of_metrics = metric_audits(connection, query, {0: (-1, 1), 1: (-1, 1)}, ["visits"])
    return {audit.flow: audit for audit in flow_audits(connection, query, None, of_metrics)}


def leaks(connection: Any, query: str) -> list[str]:
    found = [*flow_findings("t", audits(connection, query).values())]
    return [f.note for f in [*found, *outbox_findings(outbox_audits(connection, query))]]


def test_every_event_has_one_outcome_in_every_flow(flows: Flows) -> None:
    with psycopg.connect(flows._url) as connection:
        assert leaks(connection, flows.app) == []
        found = audits(connection, flows.app)
    assert {audit.flow: audit.kind for audit in found.values()} == {
        "visits": "sessions",
        "many": "pattern",
        "left": "pattern",
        "velocity": "signals",
        "sales_known": "enrichment",
    }
    sales, carts = 48 + 26 + 3, 12 + 1 + 1
    for name, taken in {
        "visits": sales,
        "many": sales,
        "left": sales + carts,
        "velocity": sales,
        "sales_known": 105,
    }.items():
        audit = found[name]
        assert (audit.accepted, audit.taken, audit.filtered) == (105, taken, 105 - taken), name
        assert sum(audit.outcomes.values()) == taken, name
    assert found["visits"].outcomes["late"] == 1
    assert found["left"].outcomes["late"] == 2
    assert found["velocity"].outcomes["block"] > 0
    assert {k: n for k, n in found["sales_known"].outcomes.items() if n} == {"found": 78, "unknown": 27}


DAMAGE = {
    "DELETE FROM {app}.visits WHERE ctid = (SELECT min(ctid) FROM {app}.visits)": "events in sessions",
    "UPDATE {app}.visits SET events = events + 1 WHERE ctid = (SELECT max(ctid) FROM {app}.visits)": "there",
    "DELETE FROM {app}.visits__pieces": "of these in pieces written, 0 there",
    "DELETE FROM {app}.visits WHERE state <> 'final'": "sessions that can change written, 0 there",
    "DROP TABLE {app}.visits": "0 there",
    "UPDATE headrace.metric_ledger SET late = late + 1 WHERE query = '{app}' AND batch_id = 1": "batches 1:",
    "DELETE FROM headrace.metric_ledger WHERE query = '{app}' AND batch_id = 2": "1 late, 0 in its ledger",
    "UPDATE headrace.flow_totals SET count = 9 WHERE query = '{app}' AND outcome = 'counted'": "accounted",
    "DELETE FROM headrace.pattern_events WHERE pattern = (SELECT id FROM headrace.patterns"
    " WHERE query = '{app}' AND pattern = 'many')": "accounted for",
    "DELETE FROM headrace.alerts WHERE app = '{app}' AND alert = 'many'": "alerts written, 0 there",
    "DELETE FROM headrace.alert_events WHERE app = '{app}' AND alert = 'left'": "alerts written, 0 there",
    "DELETE FROM {app}.velocity WHERE event_id = 'e61'": "scored events written",
    "INSERT INTO {app}.velocity SELECT 'twice', event_id, partition, \"offset\", event_time, log_time,"
    " customer, n, complete, score, decision, version FROM {app}.velocity LIMIT 1": "scored events written",
    "DELETE FROM {app}.velocity__memory": "remembered events written, 0 there",
    "UPDATE {app}.velocity__activity SET suspicious = suspicious + 1": "suspicious events of somebody",
    "DELETE FROM headrace.signal_totals WHERE app = '{app}' AND decision = 'block'": "accounted for",
    "DELETE FROM headrace.outbox WHERE query = '{app}' AND position = (SELECT min(position)"
    " FROM headrace.outbox WHERE query = '{app}')": "put into the outbox, 0 published",
    "DELETE FROM headrace.enrich_totals WHERE app = '{app}' AND outcome = 'unknown'": "105 taken, 78",
    "UPDATE headrace.flow_ledger SET taken = taken - 1 WHERE query = '{app}' AND flow = 'enrich.sales_known'"
    " AND batch_id = 0": "105 taken, 104 in its ledger",
    "DELETE FROM headrace.flow_ledger WHERE query = '{app}' AND flow = 'many' AND batch_id = 1": "1 batches",
    "UPDATE headrace.ledger SET accepted = accepted + 1 WHERE query = '{app}' AND batch_id = 1"
    " AND partition = 0": "1 batches differ from the ledger of the gate",
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.items())
def test_a_row_too_few_or_too_many_is_named(flows: Flows, damage: str, said: str) -> None:
    with psycopg.connect(flows._url) as connection:
        connection.execute(damage.replace("{app}", flows.app))  # type: ignore[arg-type]
        found = leaks(connection, flows.app)
        connection.rollback()
    assert any(said in note for note in found), found


def test_a_flow_that_is_no_longer_declared_ends_with_its_last_batch(flows: Flows) -> None:
    with psycopg.connect(flows._url) as connection:
        batch = "INSERT INTO headrace.{0} SELECT query, 3, {1} FROM headrace.{0} WHERE query = %s"
        for name, rest in {
            "batches": "started_at, finished_at, received, duplicates, dropped",
            "ledger": "partition, first_offset, end_offset, received, accepted, rejected, late, duplicate,"
            " reasons, clock, oldest_log_time",
        }.items():
            connection.execute(batch.format(name, rest) + " AND batch_id = 2", (flows.app,))  # type: ignore[arg-type]
        notes = {
            audit.flow: audit.notes
            for audit in flow_audits(connection, flows.app, ["many", "enrich.sales_known"])
            if audit.kind != "sessions"
        }
        connection.rollback()
    wrong = ("1 batches differ from the ledger of the gate",)
    assert notes == {"many": wrong, "left": (), "velocity": (), "sales_known": wrong}


def test_what_is_published_or_too_old_stays_accounted_for(flows: Flows) -> None:
    outbox = FlowOutbox()
    with psycopg.connect(flows._url) as connection:
        [lane] = [lane for lane in outbox.lanes(connection, [flows.app]) if lane.topic == "velocity.v1"]
        waiting = outbox.unpublished(connection, lane, 0, 1000)
        outbox.note_published(connection, lane, waiting[4].position)
        [audit] = [a for a in outbox_audits(connection, flows.app) if a.topic == "velocity.v1"]
        assert (audit.handed, audit.published, audit.waiting) == (len(waiting), 5, len(waiting) - 5)
    flows.feed([sale(n, 3600 + n) for n in range(200, 204)])  # all before is beyond its retention
    with psycopg.connect(flows._url) as connection:
        connection.execute(
            "UPDATE headrace.alerts SET updated_at = now() - interval '1 year' WHERE app = %s", (flows.app,)
        )
        connection.execute(
            "UPDATE headrace.alert_events SET at = now() - interval '1 year' WHERE app = %s", (flows.app,)
        )
        before = rows(connection, flows.app)
        for fold in flows.folds.values():
            fold.forget_old(connection)
        after = rows(connection, flows.app)
        assert all(after[name] < before[name] for name in after), (before, after)
        assert leaks(connection, flows.app) == []


def test_tables_that_were_never_counted_are_counted_from_now_on(flows: Flows) -> None:
    """As those of an earlier version; runs last, since it forgets."""
    with psycopg.connect(flows._url) as connection:
        connection.execute("DELETE FROM headrace.flow_totals WHERE query = %s", (flows.app,))
        connection.execute(
            "UPDATE headrace.patterns SET accepted = NULL, first_batch = NULL, old_alerts = NULL,"
            " old_events = NULL WHERE query = %s",
            (flows.app,),
        )
    for n in (300, 400):
        flows.accounts.prepare()
        flows.feed([sale(n, 3600 + n), sale(n + 1, 3601 + n)])
        with psycopg.connect(flows._url) as connection:
            assert leaks(connection, flows.app) == []


def rows(connection: Any, app: str) -> dict[str, int]:
    counted = {
        "velocity": f"SELECT count(*) FROM {app}.velocity",
        "alerts": f"SELECT count(*) FROM headrace.alerts WHERE app = '{app}'",
        "events": f"SELECT count(*) FROM headrace.alert_events WHERE app = '{app}'",
    }
    return {name: connection.execute(text).fetchone()[0] for name, text in counted.items()}
