"""Alert rules about the tables that events are looked up in, for apps that have some."""

from __future__ import annotations

from headrace.app import App
from headrace.ops.alert_rule import AlertRule, selector
from headrace.ops.limits import UNKNOWN_KEYS


def lookup_rules(app: App) -> list[AlertRule]:
    tables = [table.name for enrich in app.enrichments.values() for table in enrich.tables]
    tables += [table.name for signals in app.signal_sets.values() for table in signals.tables]
    example = next(iter(app.enrichments), None)
    return [
        *([_unreadable(app.name, tables[0])] if tables else []),
        *([_unknown(app.name, example)] if example is not None else []),
    ]


def _unreadable(app: str, table: str) -> AlertRule:
    up = f"headrace_table_up{selector(app, table=table)}"
    return AlertRule(
        name="HeadraceStaleTable",
        expr=f"headrace_table_up{selector(app)} == 0",
        wait="5m",
        severity="warning",
        summary="a change of the table {{ $labels.table }} cannot be read: the old versions stay in use",
        runbook="unknown-keys",
        fires_with={"app": app, "table": table},
        bad={up: "0+0x30"},
        good={up: "1+0x30"},
    )


def _unknown(app: str, enrich: str) -> AlertRule:
    found, unknown = (
        f"headrace_enriched_total{selector(app, enrich=enrich, outcome=outcome)}"
        for outcome in ("found", "unknown")
    )
    asked = f'headrace_enriched_total{{app="{app}",outcome!="no_key"}}'
    missed = f'headrace_enriched_total{{app="{app}",outcome=~"unknown|dead_lettered"}}'
    share = f"sum by (app, enrich) (rate({missed}[15m])) / sum by (app, enrich) (rate({asked}[15m]))"
    return AlertRule(
        name="HeadraceUnknownKeys",
        expr=f"{share} > {UNKNOWN_KEYS:g}",
        wait="10m",
        severity="warning",
        summary=f"{{{{ $labels.enrich }}}}: tables do not know more than {UNKNOWN_KEYS:.0%} of the keys",
        runbook="unknown-keys",
        fires_with={"app": app, "enrich": enrich},
        bad={found: "0+800x60", unknown: "0+200x60"},
        good={found: "0+990x60", unknown: "0+10x60"},
        minutes=50,
    )
