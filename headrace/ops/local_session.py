"""A Spark session of this process alone, for commands that need no cluster; its start is quiet."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from pyspark.sql import SparkSession

from headrace.errors import ServiceError
from headrace.settings import Settings
from headrace.spark import build_session

LAST_WORDS = 2000  # bytes


@contextmanager
def local_session(name: str, settings: Settings) -> Iterator[SparkSession]:
    """The JVM keeps the standard error that it is born with, so it is born with a file."""
    with tempfile.TemporaryFile() as said:
        with _standard_error_to(said):
            spark = _started(name, settings, said)
        try:
            yield spark
        finally:
            with _standard_error_to(said):
                spark.stop()


def _started(name: str, settings: Settings, said: IO[bytes]) -> SparkSession:
    master = settings.spark_master if settings.spark_master.startswith("local") else "local[*]"
    try:
        return build_session(
            name,
            master=master,
            memory=settings.spark_driver_memory,
            partitions=settings.shuffle_partitions or None,
            extra=settings.spark_options(),
        )
    except Exception as error:
        said.seek(max(0, said.seek(0, os.SEEK_END) - LAST_WORDS))
        words = said.read().decode(errors="replace").strip()
        raise ServiceError(f"Spark does not start: {error}", hint=words) from error


@contextmanager
def _standard_error_to(file: IO[bytes]) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
