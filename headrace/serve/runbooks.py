"""/runbooks: the pages that alerts link to, from the package itself."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from headrace.serve.markdown import as_html, title_of

# A wheel carries the pages beside this module; in the repository they are where people read them.
_FOLDERS = (
    Path(__file__).with_name("runbook_pages"),
    Path(__file__).parents[2] / "docs" / "runbooks",
)
INDEX = "README"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
STYLE = """\
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 1.8rem; }
pre { overflow-x: auto; padding: .8rem 1rem; border-radius: 6px;
  border: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
code { font: .9em ui-monospace, monospace; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .3rem .8rem .3rem 0; }
a { color: inherit; }
"""
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Headrace</title>
<link rel="stylesheet" href="/runbooks/style.css">
</head>
<body>
<nav><a href="/">Dashboard</a> · <a href="/runbooks">All runbooks</a></nav>
<main>
{body}
</main>
</body>
</html>
"""


@cache
def pages() -> dict[str, str]:
    """Name → Markdown."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if folder is None:
        return {}
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.md"))}


def runbooks_router() -> APIRouter:
    """GET /runbooks and /runbooks/{name}; a name that is no page is a 404 that leads to the list."""
    router = APIRouter(include_in_schema=False)

    @router.get("/runbooks/style.css")
    def style() -> Response:
        return Response(STYLE, media_type="text/css", headers=HEADERS)

    @router.get("/runbooks")
    def index() -> Response:
        return _answer(INDEX)

    @router.get("/runbooks/{name}")
    def page(name: str) -> Response:
        return _answer(name)

    return router


def _answer(name: str) -> Response:
    text = pages().get(name)
    status = 200 if text is not None else 404
    text = text if text is not None else "# No such runbook\n\n[All runbooks](README.md)\n"
    html = _PAGE.format(title=title_of(text), body=as_html(text, _link))
    return HTMLResponse(html, status_code=status, headers=HEADERS)


def _link(target: str) -> str | None:
    """Links between runbooks work; other pages of the documentation are not served."""
    name = target.partition("#")[0].removesuffix(".md")
    if name == INDEX:
        return "/runbooks"
    return f"/runbooks/{name}" if name in pages() else None
