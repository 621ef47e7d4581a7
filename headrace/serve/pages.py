"""The dashboard: one page and its assets, shipped with the package. It needs no other host."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from headrace.serve.answers import known_tags

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
async def index(request: Request) -> Response:
    return _file(request, STATIC / "index.html", "text/html")


@router.get("/static/{name:path}")
async def asset(request: Request, name: str) -> Response:
    if name not in ASSETS:
        raise HTTPException(404)
    return _file(request, ASSETS[name], KINDS[ASSETS[name].suffix])


def _file(request: Request, file: Path, kind: str) -> Response:
    content = file.read_bytes()
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {**HEADERS, "ETag": tag}
    if tag in known_tags(request):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
