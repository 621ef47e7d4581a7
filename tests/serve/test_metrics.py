"""Metrics over HTTP, against the tables that the store's own code has made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.serve.conftest import Sample

ROWS = "/api/v1/metrics/conversion_1m/rows"
Row = dict[str, Any]


def items(sample: Sample, path: str, **parameters: object) -> list[Row]:
    return list(sample.get(path, **parameters)["items"])  # type: ignore[call-overload]


def every_page(sample: Sample, path: str, **parameters: object) -> list[Row]:
    found: list[Row] = []
    following: object = None
    for _ in range(1000):
        asked = {**parameters, **({"cursor": following} if following else {})}
        page = sample.get(path, **asked)
        found += page["items"]  # type: ignore[operator]
        following = page["next"]
        if following is None:
            return found
    raise AssertionError("the pages do not end")


def table(sample: Sample, text: str) -> list[Row]:
    with psycopg.connect(sample.store_url, row_factory=psycopg.rows.dict_row) as connection:
        return connection.execute(text).fetchall()  # type: ignore[arg-type]


def key(row: Row) -> tuple[str, str, tuple[str, ...]]:
    return row["window_start"], row["grouping"], tuple(row["dimensions"].values())


def test_every_metric_is_listed_with_its_declaration(sample: Sample) -> None:
    found = {item["name"]: item for item in items(sample, "/api/v1/metrics")}
    assert list(found) == list(sample.seed.loaded.app.metrics)
    conversion = found["conversion_1m"]
    assert conversion["groupings"] == [[], ["region"], ["region", "device_type"]]
    assert conversion["measures"]["purchases"] == {"kind": "count", "type": "integer"}
    assert found["revenue_10m"]["measures"]["revenue"] == {"kind": "sum", "type": "decimal"}
    assert found["checkout_latency_5m"]["measures"]["latency_ms_p95"]["type"] == "number"
    [counted] = table(sample, "SELECT count(*) AS n, max(updated_at) AS at FROM turanmart.conversion_1m")
    assert conversion["rows"] == counted["n"]
    assert conversion["updated_at"] == counted["at"].astimezone(UTC).isoformat().replace("+00:00", "Z")
    assert conversion["late_events"] == 3
    assert conversion["watermark"] == sample.now.isoformat().replace("+00:00", "Z")


def test_rows_are_those_of_the_table(sample: Sample) -> None:
    found = every_page(sample, ROWS, limit=37)
    wanted = table(sample, "SELECT * FROM turanmart.conversion_1m ORDER BY window_start DESC")
    assert len(found) == len(wanted) == len({key(row) for row in found})
    assert [row["window_start"] for row in found] == sorted((r["window_start"] for r in found), reverse=True)
    [total] = [r for r in found if r["grouping"] == "all" and r["state"] == "corrected"]
    [same] = [r for r in wanted if r["grouping"] == "all" and r["state"] == "corrected"]
    assert total["values"] == {name: same[name] for name in ("impressions", "purchases", "conversion_rate")}
    assert total["dimensions"] == {} and total["revision"] == same["revision"] == 2


def test_pages_are_the_same_in_the_other_direction(sample: Sample) -> None:
    forward = every_page(sample, ROWS, limit=50, order="window_start")
    assert forward == every_page(sample, ROWS, limit=1000)[::-1]


def test_rows_by_time_state_grouping_and_dimension(sample: Sample) -> None:
    begin, end = sample.now - timedelta(minutes=10), sample.now - timedelta(minutes=5)
    found = items(
        sample,
        ROWS,
        **{"from": begin.isoformat(), "to": end.isoformat()},
        state="final,corrected",
        grouping="device_type,region",
        region="almaty",
    )
    assert found
    for row in found:
        assert begin <= datetime.fromisoformat(row["window_start"]) < end
        assert (row["state"], row["grouping"]) == ("final", "region,device_type")
        assert row["dimensions"]["region"] == "almaty"
    assert {row["grouping"] for row in items(sample, ROWS, grouping="all")} == {"all"}
    assert {row["state"] for row in items(sample, ROWS, state="final")} == {"final"}


def test_an_unescaped_plus_of_a_zone_is_understood(sample: Sample) -> None:
    begin = (sample.now - timedelta(minutes=3)).isoformat()
    answer = sample.client.get(f"{ROWS}?from={begin}")
    assert "+" in begin and answer.status_code == 200
    assert len(answer.json()["items"]) == len(items(sample, ROWS, **{"from": begin}))


def test_decimals_are_text_and_partial_results_stay_inside(sample: Sample) -> None:
    [row] = items(sample, "/api/v1/metrics/revenue_10m/rows", limit=1)
    assert set(row["values"]) == {"revenue", "purchases", "basket"}
    assert isinstance(row["values"]["revenue"], str) and Decimal(row["values"]["revenue"]) > 0
    assert isinstance(row["values"]["basket"], float)
    for metric in sample.seed.loaded.app.metrics:
        shown = sample.client.get(f"/api/v1/metrics/{metric}/rows").text
        assert "__" not in shown and '"values"' in shown


def test_the_newest_window_in_the_order_of_a_measure(sample: Sample) -> None:
    path = "/api/v1/metrics/revenue_10m/latest"
    whole = sample.get(path, order="-revenue")
    found: list[Row] = list(whole["items"])  # type: ignore[call-overload]
    revenues = [Decimal(row["values"]["revenue"]) for row in found]
    assert revenues == sorted(revenues, reverse=True) and len(found) == 5
    assert {row["window_start"] for row in found} == {whole["window_start"]}
    assert every_page(sample, path, order="-revenue", limit=2) == found
    final = sample.get(path, state="final")
    assert str(final["window_start"]) < str(whole["window_start"])
    assert {row["state"] for row in final["items"]} == {"final"}  # type: ignore[attr-defined]


def test_a_row_as_it_was(sample: Sample) -> None:
    [corrected] = items(sample, ROWS, state="corrected", grouping="all")
    start = corrected["window_start"]
    window = {"from": start, "to": start.replace("00Z", "30Z")}
    [first] = items(sample, ROWS, as_of=1, grouping="all", **window)
    assert (first["revision"], first["state"]) == (1, "preliminary")
    assert first["values"]["impressions"] < corrected["values"]["impressions"]
    [second] = items(sample, ROWS, as_of=2, grouping="all", **window)
    assert second["values"] == corrected["values"]
    assert items(sample, ROWS, as_of=0, grouping="all", **window) == []
    [then] = items(sample, ROWS, as_of=first["updated_at"], grouping="all", **window)
    assert then == first
    [today] = items(sample, ROWS, as_of="2100-01-01", grouping="all", **window)
    assert today["values"] == corrected["values"]


def test_a_running_window_has_a_version_for_each_trigger(sample: Sample) -> None:
    [today] = [m for m in items(sample, "/api/v1/metrics") if m["name"] == "top_products_today"]
    assert (today["window"], today["trigger"]) == ("running 1 day", "10 seconds")
    path = "/api/v1/metrics/top_products_today"
    now = sample.get(f"{path}/latest")["items"][0]  # type: ignore[index]
    assert now["state"] == "open" and now["revision"] > 2
    every = every_page(sample, f"{path}/revisions", limit=5)
    mine = [row for row in every if row["window_start"] == now["window_start"]]
    assert [row["revision"] for row in mine] == list(range(now["revision"], 0, -1))
    assert {row["state"] for row in mine} == {"open"} and mine[0]["values"] == now["values"]
    [then] = items(sample, f"{path}/rows", as_of=mine[2]["at"], **{"from": now["window_start"]})
    assert (then["revision"], then["values"]) == (mine[2]["revision"], mine[2]["values"])


def test_rows_as_of_a_time_come_in_pages_and_by_state(sample: Sample) -> None:
    kept = every_page(sample, ROWS, as_of="2100-01-01", limit=100, state="final")
    now = every_page(sample, ROWS, state="final", limit=1000)
    assert {key(row): row["values"] for row in kept} == {key(row): row["values"] for row in now}
    assert len(kept) == len(now)
    places = [key(row) for row in every_page(sample, ROWS, as_of="2100-01-01", region="astana")]
    assert places and all("astana" in dimensions for _, _, dimensions in places)


def test_every_published_revision(sample: Sample) -> None:
    [corrected] = items(sample, ROWS, state="corrected", grouping="all")
    path = "/api/v1/metrics/conversion_1m/revisions"
    found = items(sample, path, window_start=corrected["window_start"], grouping="all")
    assert [(r["revision"], r["state"]) for r in found] == [(2, "corrected"), (1, "preliminary")]
    assert found[0]["at"] > found[1]["at"]
    [kept] = table(sample, "SELECT count(*) AS n FROM headrace.revisions WHERE metric = 'conversion_1m'")
    [alone] = table(
        sample, "SELECT count(*) AS n FROM turanmart.conversion_1m WHERE revision = 1 AND state <> 'open'"
    )
    every = every_page(sample, path, limit=99)
    assert len(every) == kept["n"] + alone["n"] and kept["n"] and alone["n"]
    assert [row["window_start"] for row in every] == sorted((r["window_start"] for r in every), reverse=True)
    assert len({(*key(row), row["revision"], row["state"]) for row in every}) == len(every)
    by_region = items(
        sample, path, window_start=corrected["window_start"], region="almaty", state="corrected"
    )
    assert {r["grouping"] for r in by_region} == {"region", "region,device_type"}


def test_sums_in_revisions_stay_exact(sample: Sample) -> None:
    [row] = items(sample, "/api/v1/metrics/revenue_10m/revisions", limit=1, state="final")
    assert isinstance(row["values"]["revenue"], str) and isinstance(row["values"]["purchases"], int)


def test_a_metric_without_a_table_is_empty(sample: Sample) -> None:
    with psycopg.connect(sample.store_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE turanmart.visitors_5m RENAME TO gone")
        try:
            assert sample.get("/api/v1/metrics/visitors_5m/rows")["items"] == []
            assert sample.get("/api/v1/metrics/visitors_5m/latest")["items"] == []
        finally:
            connection.execute("ALTER TABLE turanmart.gone RENAME TO visitors_5m")


@pytest.mark.parametrize("path", ["/api/v1/metrics", ROWS, "/api/v1/sources", "/api/v1/late-events"])
def test_an_answer_that_is_known_is_not_sent_again(sample: Sample, path: str) -> None:
    first = sample.client.get(path)
    tag = first.headers["etag"]
    again = sample.client.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert sample.client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
