"""The service over HTTP: the paths, their answers, and errors as one sentence each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from kernel_harness import __version__
from kernel_harness.core.errors import UserError
from kernel_harness.service import metrics, work
from kernel_harness.service.errors import Refused, code_of
from kernel_harness.service.limits import LimitedBody
from kernel_harness.service.messages import Batch, Jobs, NotTaken, Status, Submission, WaitSeconds, Wanted
from kernel_harness.service.service import Service
from kernel_harness.service.tokens import owner_of

_CHUNK = 50  # submissions of a batch that are stored together; other requests are answered between two chunks
_EVENT_S = 5.0
_paths = APIRouter()


def app(service: Service, tokens: Mapping[str, str], *, most_bytes: int, longest_body_s: float) -> FastAPI:
    """Returns the application. `tokens` has the owner of each token. A body has at most `most_bytes`."""
    made = FastAPI(title="kernel harness", version=__version__, description="Judges GPU kernels.", redoc_url=None)
    made.state.service, made.state.tokens = service, tokens
    made.include_router(_paths)
    made.add_exception_handler(UserError, _refused)
    made.add_exception_handler(RequestValidationError, _malformed)
    made.add_exception_handler(HTTPException, _other)
    made.add_middleware(LimitedBody, tokens=tokens, most_bytes=most_bytes, longest_s=longest_body_s)
    if not tokens:  # a page in a browser of this machine must not reach the server by a name of its own
        made.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])
    return made


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, UserError)
    after = error.retry_after_s if isinstance(error, Refused) else None
    return JSONResponse({"error": str(error)}, code_of(error), {"Retry-After": str(after)} if after else None)


async def _malformed(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    return JSONResponse({"error": f"{place}: {first['msg']}"[:1000]}, 422)


async def _other(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _owner(request: Request, authorization: Annotated[str | None, Header()] = None) -> str:
    return owner_of(authorization, request.app.state.tokens)


Of = Annotated[Service, Depends(_service)]
Owner = Annotated[str, Depends(_owner)]


@_paths.post("/v1/jobs", status_code=202)
async def submit(service: Of, owner: Owner, submission: Submission, response: Response) -> Status:
    """Submits one kernel. Sending the same again gives the same job. The code is 200 if there is a verdict."""
    status = service.submit(owner, submission)
    response.status_code = 200 if status.finished else 202
    return status


@_paths.get("/v1/jobs/{job_id}")
async def job(service: Of, owner: Owner, job_id: str, wait_s: Annotated[WaitSeconds, Query()] = 0.0) -> Status:
    """Returns a job; waits at most `wait_s` seconds until it is finished."""
    await service.finished(owner, [job_id], wait_s)
    return service.status(owner, job_id)


@_paths.get("/v1/jobs/{job_id}/events")
async def events(service: Of, owner: Owner, job_id: str) -> StreamingResponse:
    """Streams a job as server-sent events named by its state, until it is finished."""
    service.status(owner, job_id)

    async def lines() -> AsyncIterator[str]:
        async for status in service.states(owner, job_id, _EVENT_S):
            yield f"event: {status.state}\ndata: {status.model_dump_json()}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@_paths.delete("/v1/jobs/{job_id}")
async def cancel(service: Of, owner: Owner, job_id: str) -> Status:
    """Takes a job out of the queue. A verdict that is being judged is still stored."""
    return service.cancel(owner, job_id)


@_paths.post("/v1/batches")
async def batch(service: Of, owner: Owner, batch: Batch) -> Jobs:
    """Submits many kernels. The answer has a job or an error for each, in their order, without results."""
    found: list[Status | NotTaken] = []
    for start in range(0, len(batch.submissions), _CHUNK):
        with service.together():
            found += [_taken(service, owner, each) for each in batch.submissions[start : start + _CHUNK]]
        await asyncio.sleep(0)
    return Jobs(jobs=found)


def _taken(service: Service, owner: str, submission: Submission) -> Status | NotTaken:
    try:
        return service.submit(owner, submission).model_copy(update={"result": None})
    except UserError as error:
        return NotTaken(error=str(error), retry_after_s=error.retry_after_s if isinstance(error, Refused) else None)


@_paths.post("/v1/finished")
async def finished(service: Of, owner: Owner, wanted: Wanted) -> Jobs:
    """Returns those of the jobs that are finished, 100 at most; waits at most `wait_s` seconds until one is."""
    return Jobs(jobs=[*await service.finished(owner, wanted.ids, wanted.wait_s)])


@_paths.get("/v1/problems")
async def problems(owner: Owner) -> list[str]:
    """Returns the names of the problems that the server knows."""
    return work.problem_names()


@_paths.get("/metrics", response_class=PlainTextResponse)
async def figures(service: Of, owner: Owner) -> PlainTextResponse:
    """Returns the figures of the server in Prometheus's text format."""
    return PlainTextResponse(metrics.text(service), media_type="text/plain; version=0.0.4")


@_paths.get("/healthz", response_class=PlainTextResponse)
async def health(service: Of) -> PlainTextResponse:
    """Returns `ok`, or 503 while the server ends. Needs no token."""
    return PlainTextResponse("draining", 503) if service.draining else PlainTextResponse("ok")
