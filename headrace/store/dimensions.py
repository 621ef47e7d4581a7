"""Dimensions while an engine runs: read at the start, read again when they have changed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
from psycopg import sql

from headrace.dimension_files import as_texts, check_columns, checked_row, read_file, too_large
from headrace.dimension_lake import LakeTable
from headrace.dimensions import Dimension, Versions, versions_of
from headrace.errors import AppError, HeadraceError
from headrace.store.connection import Connection, Store

logger = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
Result = TypeVar("Result")


class LiveDimension:
    """A dimension that is looked after between batches.

    A change that cannot be read is told and left alone: the versions that are there go on being used.
    """

    def __init__(
        self,
        dimension: Dimension,
        store: Store | None,
        check_seconds: float | None = None,
        lock: threading.Lock | None = None,
    ) -> None:
        self._lock = lock or threading.Lock()
        self.dimension, self._store = dimension, store
        self._lake = LakeTable(dimension) if dimension.lake else None
        self._check_seconds = CHECK_SECONDS if check_seconds is None else check_seconds
        self._versions: Versions | None = None
        self._stamp: object = None
        self._checked = 0.0
        self.loaded_at = datetime.now(UTC)
        self.generation = 0  # rises when the versions change
        self._reader = uuid4().hex
        self.problem = ""

    def current(self) -> Versions:
        """Raises AppError if the dimension cannot be read at all."""
        with self._lock:
            return self._current()

    def edition(self) -> tuple[Versions, str]:
        """The versions, and a name that no other content has had."""
        with self._lock:
            return self._current(), f"{self._reader}.{self.generation}"

    def _current(self) -> Versions:
        if self._versions is None:
            self._load()
        elif time.monotonic() - self._checked >= self._check_seconds:
            try:
                self._load()
                self.problem = ""
            except (HeadraceError, psycopg.Error, OSError) as error:
                said = str(error)
                if said != self.problem:
                    logger.warning("table %s stays as it was: %s", self.dimension.name, said)
                self.problem = said
                self._checked = time.monotonic()
        assert self._versions is not None
        return self._versions

    def _load(self) -> None:
        stamp = self._changed()
        if self._versions is None or stamp != self._stamp:
            self._versions = self._read()
            self._stamp, self.loaded_at = stamp, datetime.now(UTC)
            self.generation += 1
        self._checked = time.monotonic()

    def _changed(self) -> object:
        """Something that is different after a change; taken before the reading, so that none is missed."""
        if self.dimension.file is not None:
            try:
                found = self.dimension.file.stat()
            except OSError as error:
                raise AppError(
                    f"table '{self.dimension.name}': cannot read {self.dimension.file}: {error.strerror}",
                    where=self.dimension.declared_at,
                ) from error
            return (found.st_mtime_ns, found.st_size, found.st_ino)
        if self._lake is not None:
            return self._lake.stamp()
        return self._ask(self._stamp_of_store)

    def _read(self) -> Versions:
        if self.dimension.file is not None:
            return read_file(self.dimension)
        if self._lake is not None:
            return self._lake.read()
        found: Versions = self._ask(self._rows_of_store)
        return found

    def _ask(self, work: Any) -> Any:
        if self._store is None:
            raise AppError(
                f"table '{self.dimension.name}' is in the store, and there is none here",
                where=self.dimension.declared_at,
            )
        try:
            return self._store.transact(work)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise AppError(
                f"table '{self.dimension.name}': the store has no {self.dimension.place}",
                where=self.dimension.declared_at,
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise AppError(
                f"table '{self.dimension.name}': the engine may not read {self.dimension.place}",
                where=self.dimension.declared_at,
                hint=f"GRANT SELECT ON {self.dimension.place} to the user of store_url",
            ) from error

    def _stamp_of_store(self, connection: Connection) -> object:
        """Postgres counts the changes of a table, a moment late; what a view shows is summed up."""
        changes = connection.execute(
            "SELECT s.n_tup_ins, s.n_tup_upd, s.n_tup_del FROM pg_stat_user_tables s"
            " JOIN pg_class c ON c.oid = s.relid AND c.relkind = 'r'"
            " WHERE s.schemaname = %s AND s.relname = %s",
            self.dimension.store,
        ).fetchone()
        content = "0" if changes is not None else "sum(hashtextextended(shown::text, 0)::numeric)"
        size = connection.execute(
            sql.SQL("SELECT count(*), {} FROM (SELECT * FROM {} LIMIT %s) AS shown").format(
                sql.SQL(content), sql.Identifier(*(self.dimension.store or ()))
            ),
            (self.dimension.limit + 1,),
        ).fetchone()
        return (changes, size)

    def _rows_of_store(self, connection: Connection) -> Versions:
        dimension = self.dimension
        cursor = connection.execute(
            sql.SQL("SELECT * FROM {} LIMIT %s").format(sql.Identifier(*(dimension.store or ()))),
            (dimension.limit + 1,),
        )
        names = [column.name for column in cursor.description or ()]
        found = cursor.fetchall()
        if len(found) > dimension.limit:
            raise too_large(dimension, dimension.place)
        columns = check_columns(dimension, dimension.place, names)
        given = (dict(zip(names, row, strict=True)) for row in found)
        rows = [checked_row(dimension, dimension.place, as_texts(dimension, row), columns) for row in given]
        if len({(row.key, row.valid_from) for row in rows}) < len(rows):
            raise AppError(
                f"table '{dimension.name}' has two versions of a key from the same moment",
                where=dimension.place,
            )
        return versions_of(columns, rows)


class Dimensions:
    """The dimensions of one query, each once."""

    def __init__(self, store: Store | None = None, check_seconds: float | None = None) -> None:
        self._store, self._check_seconds = store, check_seconds
        self._live: dict[str, LiveDimension] = {}
        self._lock = threading.Lock()  # publishing and merging are threads of their own, the store is one

    def transact(self, work: Callable[[Connection], Result]) -> Result:
        """Raises AppError where there is no store."""
        if self._store is None:
            raise AppError("events that wait for a table need a store, and there is none here")
        with self._lock:
            return self._store.transact(work)

    def live(self, dimension: Dimension) -> LiveDimension:
        """Raises AppError where two tables of one name are not the same."""
        found = self._live.setdefault(
            dimension.name, LiveDimension(dimension, self._store, self._check_seconds, self._lock)
        )
        if (found.dimension.place, found.dimension.key) != (dimension.place, dimension.key):
            raise AppError(
                f"there are two tables '{dimension.name}'",
                where=dimension.declared_at,
                hint=f"the first is at {found.dimension.declared_at}",
            )
        return found


def note_tables(connection: Connection, app: str, tables: Iterable[LiveDimension]) -> None:
    """For those who watch: which versions are in use, and whether a change could not be read."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO headrace.dimensions AS known VALUES (%s, %s, %s, %s, %s, now(), %s, now())"
            " ON CONFLICT (app, name) DO UPDATE SET place = excluded.place, rows = excluded.rows,"
            " loaded_at = excluded.loaded_at, checked_at = excluded.checked_at, problem = excluded.problem,"
            " sound_at = CASE WHEN excluded.problem = '' THEN excluded.sound_at ELSE known.sound_at END",
            [
                (
                    *(app, live.dimension.name, live.dimension.place),
                    *(live.current().rows, live.loaded_at, live.problem),
                )
                for live in sorted(tables, key=lambda live: live.dimension.name)
            ],
        )
