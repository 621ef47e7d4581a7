"""Models: artefacts that score events from their features, a whole batch at a time. No Spark.

A JSON artefact (a logistic regression) needs numpy alone; scikit-learn and ONNX artefacts need the extra
`headrace[models]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import AppError

KINDS = {".json": "JSON", ".joblib": "scikit-learn", ".pkl": "scikit-learn", ".onnx": "ONNX"}


@dataclass(frozen=True)
class Model:
    """An artefact. Its version is written into every row that it scores."""

    file: Path
    version: str
    features: tuple[str, ...] = ()  # their order; a JSON artefact and many of scikit-learn name their own
    declared_at: str = ""


def model(file: str, *, version: str, features: Sequence[str] = ()) -> Model:
    """`.json` (a logistic regression), `.joblib` or `.onnx`, found beside the app."""
    caller = inspect.stack()[1]
    where = f"{caller.filename}:{caller.lineno}"
    if Path(file).suffix not in KINDS:
        raise AppError(f"'{file}' is no model", where=where, hint=f"there are: {', '.join(KINDS)}")
    if not version:
        raise AppError(f"model '{file}' has no version", where=where, hint='version="1"')
    return Model(Path(file), version, tuple(features), where)
