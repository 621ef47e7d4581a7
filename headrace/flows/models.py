"""Artefacts of models, loaded once: they score the features of a whole batch at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from headrace.errors import AppError
from headrace.models import KINDS, Model


class LoadedModel(Protocol):
    features: tuple[str, ...]

    def score(self, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """One score for each row of features; a missing feature is NaN."""


def load_model(declared: Model) -> LoadedModel:
    """Raises AppError for an artefact that is missing, cannot be read or does not name its features."""
    kind = KINDS[declared.file.suffix]
    try:
        match kind:
            case "JSON":
                return _read_json(declared)
            case "ONNX":
                return _Onnx(declared)
            case _:
                return _ScikitLearn(declared)
    except ImportError as error:
        raise AppError(
            f"model {declared.file.name} is of {kind}, which is not installed",
            where=declared.declared_at,
            hint="pip install headrace[models]",
        ) from error
    except OSError as error:
        raise AppError(
            f"cannot read model {declared.file}: {error.strerror or error}", where=declared.declared_at
        ) from error


class Logistic:
    """Each feature has a weight and the mean and scale it was trained with; some are taken as log(1 + x)."""

    def __init__(self, given: dict[str, Any]) -> None:
        parts = given["features"]
        self.features = tuple(str(part["name"]) for part in parts)
        self._weights = np.array([float(part["weight"]) for part in parts])
        self._means = np.array([float(part["mean"]) for part in parts])
        self._scales = np.array([float(part["scale"]) for part in parts])
        self._logs = np.array([bool(part.get("log", False)) for part in parts])
        self._intercept = float(given["intercept"])

    def score(self, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        given = np.where(self._logs, np.log1p(np.clip(matrix, 0, None)), matrix)
        centred = np.where(np.isnan(given), 0.0, (given - self._means) / self._scales)
        return np.asarray(1 / (1 + np.exp(-np.clip(centred @ self._weights + self._intercept, -500, 500))))

    @property
    def sql(self) -> str:
        """The same score as Spark SQL over columns that have the names of the features."""
        terms = [f"{self._intercept!r}D"]
        parts = zip(self.features, self._weights, self._means, self._scales, self._logs, strict=True)
        for name, weight, mean, scale, is_log in parts:
            value = f"CAST(`{name}` AS DOUBLE)"
            given = f"log1p(greatest({value}, 0D))" if is_log else value
            centred = f"({given} - {float(mean)!r}D) / {float(scale)!r}D"
            terms.append(
                f"{float(weight)!r}D * CASE WHEN nanvl({value}, NULL) IS NULL THEN 0D ELSE {centred} END"
            )
        return f"1D / (1D + exp(-greatest(least({' + '.join(terms)}, 500D), -500D)))"


def model_sql(declared: Model) -> str:
    """A JSON artefact as an expression, for where there is no Python."""
    return _read_json(declared).sql


def _read_json(declared: Model) -> Logistic:
    try:
        given = json.loads(declared.file.read_text(encoding="utf-8"))
        kind, version = given["kind"], str(given["version"])
        if kind != "logistic":
            raise ValueError(f"kind {kind!r}; there is: logistic")
        if version != declared.version:
            raise AppError(
                f"model {declared.file.name} is version {version}, not {declared.version}",
                where=declared.declared_at,
            )
        return Logistic(given)
    except (ValueError, KeyError, TypeError) as error:
        raise AppError(
            f"model {declared.file} cannot be read: {error}", where=declared.declared_at
        ) from error


class _ScikitLearn:
    """Anything with predict_proba (the second class is what counts), or else predict."""

    def __init__(self, declared: Model) -> None:
        import joblib  # type: ignore[import-untyped,unused-ignore]

        self._model = joblib.load(declared.file)
        named = tuple(map(str, getattr(self._model, "feature_names_in_", ())))
        self.features = declared.features or named
        _need_features(declared, self.features)
        self._named = bool(named)

    def score(self, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        given: Any = matrix
        if self._named:
            import pandas as pd

            given = pd.DataFrame(matrix, columns=list(self.features))
        if hasattr(self._model, "predict_proba"):
            return np.asarray(self._model.predict_proba(given))[:, 1]
        return np.asarray(self._model.predict(given), dtype=float)


class _Onnx:
    """One input of floats, a row for each event; the last output is the scores, or those of each class."""

    def __init__(self, declared: Model) -> None:
        import onnxruntime  # type: ignore[import-not-found,unused-ignore]

        self._session = onnxruntime.InferenceSession(str(declared.file), providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        self.features = declared.features
        _need_features(declared, self.features)

    def score(self, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found = self._session.run(None, {self._input: matrix.astype(np.float32)})[-1]
        if isinstance(found, list):  # a map from class to probability for each event
            return np.array([row[max(row)] for row in found], dtype=float)
        scores = np.asarray(found, dtype=float)
        return scores[:, -1] if scores.ndim == 2 else scores


def _need_features(declared: Model, features: Sequence[str]) -> None:
    if not features:
        raise AppError(
            f"model {declared.file.name} does not say in which order it wants its features",
            where=declared.declared_at,
            hint='model(…, features=["payments_5m", "amount_5m"])',
        )
