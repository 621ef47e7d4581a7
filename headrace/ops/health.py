"""Is the pipeline well? One verdict with its reasons, for probes, for the API and for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.errors import ServiceError
from headrace.ops.pipeline import PipelineView, iso

Status = Literal["ok", "degraded", "down"]
_WORSE: tuple[Status, ...] = ("ok", "degraded", "down")
_STATUS: dict[str, Status] = {"running": "ok", "restarting": "degraded", "stopped": "down", "unknown": "down"}
Check = dict[str, Any]


def health_now(view: PipelineView) -> dict[str, Any]:
    """A store that does not answer is a verdict too, not an error."""
    try:
        return health_of(view.now())
    except ServiceError as error:
        return _verdict(datetime.now(UTC), [_check("store", "down", error.what, None)])


def health_of(pipeline: dict[str, Any]) -> dict[str, Any]:
    """The verdict over a pipeline object."""
    checks = [_check("store", "ok", "answers", None)]
    problems = pipeline["problems"]
    checks.append(_check("log", "down" if problems else "ok", "; ".join(problems) or "answers", None))
    for source in pipeline["sources"]:
        checks += _checks_of(source)
    checks += [_lane(lane) for lane in pipeline.get("lanes", ())]
    return _verdict(datetime.fromisoformat(pipeline["at"]), checks)


def _verdict(at: datetime, checks: list[Check]) -> dict[str, Any]:
    status = max((check["status"] for check in checks), key=_WORSE.index)
    return {"status": status, "checks": checks, "at": iso(at)}


def _checks_of(source: dict[str, Any]) -> Iterator[Check]:
    name, slo = source["source"], source["slo"]
    status = _STATUS[source["status"]]
    yield _check(f"query {name}", status, _query_detail(source), "restart-storms" if status != "ok" else None)
    leak = source["unaccounted"]
    yield _check(
        f"accounts {name}",
        "degraded" if leak else "ok",
        f"{leak} records without a fate" if leak else "every record has a fate",
        "unaccounted-records" if leak else None,
    )
    latency = source["latency_seconds"]
    promises = (
        ("freshness", source["freshness_seconds"], slo["freshness_seconds"], " s", "stale-metric"),
        ("latency", latency and latency["p99"], slo["latency_seconds"], " s", "sink-backpressure"),
        ("rejections", source["rejected_ratio"], slo["error_rate"], "", "dead-letters"),
    )
    for what, value, limit, unit, runbook in promises:
        if value is not None and limit is not None:
            broken = value > limit
            said = f"{value:g}{unit}, promised are {limit:g}{unit}"
            yield _check(f"{what} {name}", "degraded" if broken else "ok", said, runbook if broken else None)


def _lane(lane: dict[str, Any]) -> Check:
    """Without it its signals wait, and nothing is lost."""
    runs = lane["status"] == "running"
    cause = f"; the last failure: {lane['last_failure']}" if lane["last_failure"] and not runs else ""
    runbook = None if runs else "realtime-lane"
    return _check(f"lane {lane['source']}", "ok" if runs else "degraded", f"{lane['status']}{cause}", runbook)


def _query_detail(source: dict[str, Any]) -> str:
    status, cause = source["status"], source["last_failure"]
    if status == "running":
        return "running"
    if status == "unknown":
        last = source["reported_at"]
        return f"no report since {last}" if last else "no engine has reported yet: headrace run, headrace up"
    because = f"; the last failure: {cause}" if cause else ""
    return f"{status}, {source['failures']} failures, {source['restarts']} restarts so far{because}"


def _check(name: str, status: Status, detail: str, runbook: str | None) -> Check:
    link = f"/runbooks/{runbook}" if runbook else None
    return {"name": name, "status": status, "detail": detail, "runbook": link}
