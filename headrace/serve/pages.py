"""The dashboard: one page and its assets, shipped with the package. It needs no other host."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

STATIC = Path(__file__).parent / "static"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    # Nothing inline, nothing from elsewhere: injected markup could neither run nor send anything.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Asked again each time, answered with 304: a new version is seen with the next load.
    "Cache-Control": "no-cache",
}


# What is not in this list is not served, whatever a path looks like.
ASSETS = {str(file.relative_to(STATIC)): file for file in STATIC.rglob("*") if file.suffix in KINDS}

# No token is asked for: the page holds no data, it asks the API for it.
router = APIRouter(include_in_schema=False)


@router.get("/")
async def index() -> Response:
    return FileResponse(STATIC / "index.html", media_type="text/html", headers=HEADERS)


@router.get("/static/{name:path}")
async def asset(name: str) -> Response:
    file = ASSETS.get(name)
    if file is None:
        raise HTTPException(404)
    return FileResponse(file, media_type=KINDS[file.suffix], headers=HEADERS)
