"""Routes about the accounts and the catalogue: ledger, audit, sources, contracts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from headrace.contracts.model import Contract
from headrace.errors import known_names
from headrace.serve import models, pipeline_models, trouble_models
from headrace.serve import sources as documents
from headrace.serve.access import Asking
from headrace.serve.answers import answer
from headrace.serve.parameters import only_declared, parse_time
from headrace.serve.problems import Problem, wrong
from headrace.serve.routes_metrics import Paged, Served
from headrace.serve.serving import Serving

router = APIRouter(prefix="/api/v1", dependencies=[Depends(only_declared)])
Name = Annotated[str, Path(description="A source.", examples=["clickstream"])]
Since = Annotated[
    str | None,
    Query(alias="from", description="Committed at this time or later.", examples=["2026-03-01T09:00:00Z"]),
]
Until = Annotated[
    str | None,
    Query(alias="to", description="Committed before this time.", examples=["2026-03-01T10:00:00Z"]),
]
OfSource = Annotated[str | None, Query(description="Only this source.", examples=["clickstream"])]


@router.get(
    "/ledger",
    tags=["accounts"],
    summary="The ledger, newest batches first",
    response_model=trouble_models.Ledger,
    responses=models.problems(),
)
async def ledger(
    request: Request,
    _caller: Asking,
    serving: Served,
    page: Paged,
    source: OfSource = None,
    since: Since = None,
    until: Until = None,
) -> Response:
    """For each batch and partition: received = accepted + rejected + late + duplicate."""
    streams = _asked(serving, source)
    begin, end = parse_time("from", since), parse_time("to", until)
    return answer(request, await serving.ledger.page(streams, begin, end, page))


@router.get(
    "/audit",
    tags=["accounts"],
    summary="Does every record have exactly one fate?",
    response_model=trouble_models.Audit,
    responses=models.problems(),
)
async def audit(request: Request, _caller: Asking, serving: Served, source: OfSource = None) -> Response:
    """The ledger against itself and against the broker's offsets, as `headrace audit` does it.

    A source that nobody has read yet has `clean: null`. A recount of every record is left to the command.
    """
    return answer(request, await serving.audits.audit(_asked(serving, source)))


@router.get(
    "/sources",
    tags=["catalogue"],
    summary="The streams of the app",
    response_model=pipeline_models.Sources,
    responses=models.problems(),
)
async def sources(request: Request, _caller: Asking, serving: Served) -> Response:
    """Name, owner, contract version, classification, topics and times of every stream."""
    return answer(request, {"items": documents.catalogue(serving.loaded), "next": None})


@router.get(
    "/sources/{name}/contract",
    tags=["catalogue"],
    summary="A stream's contract",
    response_model=pipeline_models.ContractDocument,
    responses=models.problems(404),
)
async def contract(request: Request, name: Name, caller: Asking, serving: Served) -> Response:
    """The ODCS file as JSON. Examples are left out where the caller may not see the stream's values."""
    found = _contract(serving, name)
    sees = serving.access.sees_fields(caller, name)
    return answer(request, documents.contract_document(found, examples=sees))


@router.get(
    "/sources/{name}/schema",
    tags=["catalogue"],
    summary="JSON Schema of a stream's events",
    response_model=pipeline_models.EventSchema,
    responses=models.problems(404),
)
async def schema(request: Request, name: Name, caller: Asking, serving: Served) -> Response:
    """For producers, to check events before they send them."""
    found = _contract(serving, name)
    sees = serving.access.sees_fields(caller, name)
    return answer(request, documents.schema_document(found, examples=sees))


def _asked(serving: Serving, source: str | None) -> list[str]:
    known = sorted(serving.loaded.contracts)
    if source is not None and source not in known:
        raise wrong("source", "there is no such source", known_names(source[:80], known))
    return known if source is None else [source]


def _contract(serving: Serving, name: str) -> Contract:
    known = serving.loaded.contracts
    if name not in known:
        raise Problem(404, f"no source '{name[:80]}'", hint=known_names(name[:80], known))
    return known[name]
