"""The accepted events of a batch, as the SQL of every derivation reads them from the view `judged`."""

from __future__ import annotations

from headrace.fates import ACCEPTED

FEW = 50_000  # rows that one task reduces sooner than a shuffle would


def accepted_events(few: bool, with_fields: bool = True) -> str:
    """The accepted events of the batch as a common table expression; `few` fit into one task.

    Without fields it asks for none: where nothing needs one, the batch does not carry them.
    """
    hint = "/*+ COALESCE(1) */" if few else ""
    own = (
        "partition AS __partition, offset AS __offset, event_time AS __event_time, clock AS __clock,"
        " unix_micros(log_time) AS __log_time, dedupe_id AS __id"
    ) + (", fields.*" if with_fields else "")
    return f"accepted AS (SELECT {hint} {own} FROM judged WHERE fate = {ACCEPTED})"
