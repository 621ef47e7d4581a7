"""Columns of texts as the lines that COPY reads, without a look at any single row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headrace.store.connection import Connection
from headrace.views.pane_rows import Texts

NULL = "\\N"
AT_ONCE = 20_000  # rows
SPECIAL = r"[\\\t\n\r\x00]"
# What COPY reads as something else; a NUL cannot be kept in Postgres at all.
ESCAPES = (
    *(("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")),
    ("\0", "\N{REPLACEMENT CHARACTER}"),
)


def copy_rows(
    connection: Connection,
    table: sql.Identifier,
    names: Sequence[str],
    parts: Iterable[Sequence[Texts | str]],
) -> None:
    """Send rows with the named columns through one COPY; each part has columns of its own.

    A column that is one text has it in every row of the part; the first must be a column. Texts are as COPY
    reads them: what somebody else wrote has to be `escaped`.
    """
    command = sql.SQL("COPY {} ({}) FROM STDIN").format(table, sql.SQL(", ").join(map(sql.Identifier, names)))
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        for columns in parts:
            # Piece by piece: Postgres reads one while the next is made.
            for first in range(0, len(columns[0]), AT_ONCE):
                copy.write(_lines([c if isinstance(c, str) else c.slice(first, AT_ONCE) for c in columns]))


def texts_of(values: npt.NDArray[np.int64], *texts: Callable[[int], str]) -> list[Texts]:
    """Columns of texts for numbers, made once for each number that is different."""
    different, places = np.unique(values, return_inverse=True)
    return [
        pa.array([text(value) for value in different.tolist()], pa.string()).take(places) for text in texts
    ]


def _lines(cells: list[Any]) -> memoryview:
    joined: Any = pc.binary_join_element_wise(*cells, "\t", null_handling="replace", null_replacement=NULL)
    ended: Any = pc.binary_join_element_wise(joined, "", "\n")
    whole = pa.concat_arrays(ended.chunks) if isinstance(ended, pa.ChunkedArray) else ended
    buffers: Any = whole.buffers()
    _, offsets, text = buffers
    places = np.frombuffer(offsets, np.int32)[whole.offset : whole.offset + len(whole) + 1]
    return memoryview(text)[places[0] : places[-1]]


def escaped(column: Texts) -> Texts:
    """Hardly any text ever holds a character that COPY gives a meaning."""
    if pc.any(pc.match_substring_regex(column, SPECIAL)).as_py():
        for character, code in ESCAPES:
            column = pc.replace_substring(column, character, code)
    return column
