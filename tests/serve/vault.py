"""An app whose event ids are classified, and nothing else of it: one event of it in every table there is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg import sql

from headrace.ops.load import LoadedApp, load_app
from headrace.store.join_names import letter_table, result_table
from tests.serve.flow_rows import make_join_tables
from tests.serve.seed import Seed

SECRET = "slip-20-11-1990"
AT = datetime(2026, 3, 1, 9, tzinfo=UTC)
APP = """
from headrace import App, count, tumbling

app = App("vault", contracts="contracts")
app.metric("slips_1m", of="slips", window=tumbling("1 minute"), measures={"n": count()})
app.sessions("visits", of="slips", key="shop", gap="5 minutes", max_length="1 hour", measures={"n": count()})
app.join("met", left="slips", right="boxes", on="shop", within="5 minutes", columns={"note": "left.note"})
app.join("owned", left="slips", right="boxes", on="owner", within="5 minutes", columns={"who": "left.owner"})
app.pattern("hasty", of="slips", key="shop", count=2, within="1 minute")
app.signals("odd", of="slips", key="shop", features={"n": "1"}, score="0.5", decision={"block": 0.9})
"""
CONTRACT = """
kind: DataContract
apiVersion: v3.2.0
id: {name}
version: 1.0.0
schema:
  - name: {name}
    properties:
      - {{name: id, logicalType: string, required: true, primaryKey: true, classification: restricted}}
      - {{name: at, logicalType: timestamp, required: true}}
      - {{name: shop, logicalType: string, required: true, partitioned: true}}
      - {{name: owner, logicalType: string, classification: restricted}}
      - {{name: note, logicalType: string}}
team: {{name: bank}}
roles:
  - {{role: auditor, access: read}}
"""
_ALERT = """
    INSERT INTO headrace.alerts VALUES ('p1', 'vault', 'hasty', 'hasty', 'warning', 'open', '', 'shop',
    '{"shop": "s-1"}', now(), now(), 1, %s, 'told', '', 1, now(), now(), NULL)
"""


def vault_app(folder: Path) -> LoadedApp:
    (folder / "contracts").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    for name in ("slips", "boxes"):
        (folder / "contracts" / f"{name}.yaml").write_text(CONTRACT.format(name=name))
    return load_app(folder)


def fill_vault(store_url: str, loaded: LoadedApp) -> None:
    """The engine's tables, with the secret wherever it would write an event id."""
    Seed(store_url, loaded).batch(AT, events=3)
    with psycopg.connect(store_url) as connection:
        for metric in ("slips_1m", "visits"):
            connection.execute(
                "INSERT INTO headrace.late_events VALUES ('vault', %s, %s, 0, 7, %s, %s, %s, %s, '1 s',"
                " 'late', now())",
                (metric, SECRET, *[AT] * 4),
            )
        for join in loaded.app.joins.values():
            make_join_tables(connection, loaded, join.name)
            _fill_join(connection, join.name, list(join.columns))
        told = '{"events": 1, "matches": 1, "matched": [{"event_id": "%s", "offset": 7}]}'
        connection.execute(_ALERT, (told % SECRET,))
        connection.execute(
            'CREATE TABLE vault.odd (id text, event_id text, partition int, "offset" bigint, event_time'
            " timestamptz, log_time timestamptz, shop text, n int, complete boolean, score float8, decision"
            " text, version text, shadow_score float8, shadow_decision text, shadow_version text,"
            " scored_at timestamptz)"
        )
        connection.execute(
            "INSERT INTO vault.odd VALUES (%s, %s, 0, 7, %s, %s, 's-1', 1, true, 0.5, 'allow', '1', NULL,"
            " NULL, NULL, %s)",
            (f"odd:{SECRET}", SECRET, *[AT] * 3),
        )


def _fill_join(connection: psycopg.Connection, join: str, columns: list[str]) -> None:
    [column] = columns
    results, letters = result_table("vault", join), letter_table("vault", join)
    key = "Dilnoza" if join == "owned" else "s-1"
    own = ["m1", key, SECRET, SECRET, *[AT] * 3]
    connection.execute(
        sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)").format(results),
        [*own, AT, key],
    )
    connection.execute(
        sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, %s, %s, %s, 'no_boxes', 'left', %s, %s)").format(
            letters
        ),
        [*own, json.dumps({column: key}), AT],
    )
