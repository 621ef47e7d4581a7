"""Finding and loading an app's traffic model."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import AppError, UsageError
from headrace.testing.traffic import load_traffic

MODEL = """
from dataclasses import dataclass
from headrace.log.record import Record

@dataclass(frozen=True)
class Traffic:
    events: int = 2

def records(options):
    for number in range(options.events):
        yield Record("{stream}", None, b"{{}}", float(number))
"""


def write_model(folder: Path, stream: str, package: bool = False) -> Path:
    file = folder / "traffic" / "__init__.py" if package else folder / "traffic.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(MODEL.format(stream=stream))
    return folder


def streams(app: Path) -> list[str]:
    model = load_traffic(app)
    return [record.stream for record in model.records(model.options(events=1))]


def test_two_apps_keep_their_models_apart(tmp_path: Path) -> None:
    one = write_model(tmp_path / "one", "a")
    two = write_model(tmp_path / "two", "b", package=True)
    assert (streams(one), streams(two / "app.py"), streams(one)) == (["a"], ["b"], ["a"])


def test_an_app_without_a_model_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(AppError, match="no traffic model") as failure:
        load_traffic(tmp_path)
    assert "records(options)" in str(failure.value)


def test_a_model_without_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "traffic.py").write_text("class Traffic: pass\n")
    with pytest.raises(AppError, match="dataclass Traffic"):
        load_traffic(tmp_path)


def test_an_option_that_the_model_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no option 'spike'"):
        load_traffic(write_model(tmp_path, "a")).options(spike=2)
