"""headrace init: a small app of one's own to start from."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from headrace.errors import UsageError

NAME = re.compile(r"[a-z][a-z0-9_-]{0,47}")
LAYOUT = {
    "contracts/visits.yaml": "contract.yaml",
    "app.py": "app.py.txt",
    "events.jsonl": "events.jsonl",
    "headrace.toml": "headrace.toml",
}


def init(
    name: Annotated[str, typer.Argument(help="The app's name, or a path that ends with it.")],
) -> None:
    """Lay out a new app in a folder of its own: a contract, an app file, sample events, settings."""
    folder = Path(name)
    app = folder.name
    if not NAME.fullmatch(app):
        raise UsageError(
            f"'{name}' cannot name an app", hint="use up to 48 of a-z, 0-9, '-' and '_', a letter first"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder", hint="choose another name")
    try:
        for path, template in LAYOUT.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_filled(template, app))
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from error
    place = shlex.quote(str(folder))
    events, output = shlex.quote(f"visits={folder / 'events.jsonl'}"), shlex.quote(str(folder / "out"))
    print(f"made {folder}: {', '.join(LAYOUT)}")
    print("next, find mistakes before anything starts, then run the sample events through the gate:")
    print(f"  headrace check {place}")
    print(f"  headrace simulate {place} --input {events} --output {output}")


def _filled(template: str, app: str) -> str:
    text = (files("headrace") / "templates" / template).read_text()
    # Sample events are full of braces; only the other templates have a name to fill in.
    return text.format(name=app) if template in ("contract.yaml", "app.py.txt") else text
