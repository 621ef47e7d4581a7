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
SPECIAL = r"[\\\t\n\r\x00]"
# What COPY reads as something else; a NUL cannot be kept in Postgres at all.
ESCAPES = (
    *(("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")),
    ("\0", "\N{REPLACEMENT CHARACTER}"),
)


def copy_rows(connection: Connection, table: sql.Identifier, parts: Iterable[Sequence[Texts | str]]) -> None:
    """Send rows through one COPY; each part has columns of its own.

    A column that is one text has it in every row of the part; the first must be a column.
    """
    with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(table)) as copy:
        for columns in parts:
            cells: list[Any] = [c if isinstance(c, str) else _escaped(c) for c in columns]
            lines: Any = pc.binary_join_element_wise(
                *cells, "\t", null_handling="replace", null_replacement=NULL
            )
            for chunk in lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]:
                if len(chunk):
                    whole = pa.ListArray.from_arrays(pa.array([0, len(chunk)], pa.int32()), chunk)
                    text: Any = pc.binary_join(whole, "\n")
                    copy.write(text[0].as_py())
                    copy.write("\n")


def texts_of(values: npt.NDArray[np.int64], text: Callable[[int], str]) -> Texts:
    """A text for each number, made once for each that is different."""
    different, places = np.unique(values, return_inverse=True)
    return pa.array([text(value) for value in different.tolist()], pa.string()).take(places)


def _escaped(column: Texts) -> Texts:
    """Hardly any text ever holds a character that COPY gives a meaning."""
    if pc.any(pc.match_substring_regex(column, SPECIAL)).as_py():
        for character, code in ESCAPES:
            column = pc.replace_substring(column, character, code)
    return column
