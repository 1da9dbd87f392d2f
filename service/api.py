"""The routes: each reads, asks, writes. Errors are raised, never turned into responses here."""

from __future__ import annotations

import asyncio
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from service.answers import Cut, RowOutcome, answer_document
from service.engine import Engine
from service.errors import (
    BodyTimeout,
    ClientGone,
    NotReady,
    RequestTimeout,
    UnsupportedBody,
)
from service.middleware import CLASSIFY, MODEL
from service.openapi import CLASSIFY_RESPONSES, NOT_READY_RESPONSE, UNAUTHORISED_RESPONSE
from service.parsing import parse_request
from service.pending import Pending
from service.responses import json_response
from service.served import Served

router = APIRouter()


@router.post(CLASSIFY, tags=["classify"], responses=CLASSIFY_RESPONSES)
async def classify(request: Request) -> Response:
    """Classify texts.

    Each text leaves at the first exit that is sure enough; `threshold` says how sure.
    """
    started = asyncio.get_running_loop().time()
    served: Served = request.app.state.served
    settings = served.settings
    engine = served.readiness.require_engine()
    _check_content_type(request)
    body = await _read_body(request, settings.body_timeout_seconds)
    asked = parse_request(body, max_texts=settings.max_texts, max_top_k=settings.max_top_k)
    slide = served.sliding.look(engine.admission.expected_wait_seconds, started)
    policy = served.policies.resolve(asked.knobs, slide=slide)
    if policy.slid:
        served.metrics.slid()
    inputs = asked.texts()
    engine.admission.refuse_overload(len(inputs))
    texts = await served.tokenisation.encode(inputs, refuse_cut=asked.truncation == "refuse")
    deadline = None if asked.deadline_ms is None else started + asked.deadline_ms / 1000
    pending = engine.submit(texts, policy.policy, explain=asked.explain, deadline=deadline)
    timeout_at = started + settings.request_timeout_seconds
    outcomes = await _outcomes(engine, pending, request.receive, timeout_at)
    cuts = [
        Cut(text=text.truncated, pair=None if pair is None else text.truncated_pair)
        for text, pair in zip(texts, (item.text.text_pair for item in inputs), strict=True)
    ]
    document = answer_document(
        outcomes, cuts, policy, served.shape, top_k=asked.top_k, explain=asked.explain
    )
    return json_response(document)


@router.get(MODEL, tags=["model"], responses={**UNAUTHORISED_RESPONSE, **NOT_READY_RESPONSE})
async def model(request: Request) -> Response:
    """Describe the bundle being served.

    Labels, exits, operating points with what they promise, and the limits in force.
    """
    return json_response(request.app.state.served.model_document())


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", tags=["operations"])
async def healthz() -> Response:
    """Say that the process answers."""
    return json_response({"status": "ok"})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", tags=["operations"], responses=NOT_READY_RESPONSE)
async def readyz(request: Request) -> Response:
    """Say whether requests can be taken.

    Bundle verified, every stage warm, golden examples right, worker alive. `drift` lists operating
    points that are suspended: their requests get full depth.
    """
    served: Served = request.app.state.served
    refusal = served.readiness.refusal
    if refusal is not None:
        raise NotReady(refusal)
    return json_response(
        {
            "status": "ready",
            "bundle": served.bundle.identifier,
            "drift": served.watch.document(),
        }
    )


@router.get("/metrics", tags=["operations"])
async def metrics(request: Request) -> Response:
    """Give all metrics to Prometheus."""
    served: Served = request.app.state.served
    return Response(
        generate_latest(served.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """The documentation page; it reads /openapi.json and nothing from elsewhere."""
    return HTMLResponse(files("service").joinpath("docs_page.html").read_text("utf-8"))


def _check_content_type(request: Request) -> None:
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if media_type.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        raise UnsupportedBody("Send JSON in UTF-8 with `Content-Type: application/json`.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedBody("Send the body without compression.")


async def _read_body(request: Request, timeout_seconds: float) -> bytes:
    try:
        async with asyncio.timeout(timeout_seconds):
            return await request.body()
    except TimeoutError:
        raise BodyTimeout(
            f"The body did not arrive within {timeout_seconds:g} s.",
            members={"limit": timeout_seconds, "setting": "body_timeout_seconds"},
        ) from None
    except ClientDisconnect:
        raise ClientGone("The client hung up.") from None


async def _outcomes(
    engine: Engine, pending: Pending, receive: Receive, timeout_at: float
) -> tuple[RowOutcome, ...]:
    """Waits for the answers, and gives the request up when it takes too long or the client goes."""
    loop = asyncio.get_running_loop()
    gone = ClientGone("The client hung up.")
    late = RequestTimeout("The request was not answered in time; try again, or send fewer texts.")
    timer = loop.call_at(timeout_at, engine.abandon, pending, late)
    watcher = loop.create_task(_hang_up(receive))
    watcher.add_done_callback(
        lambda task: None if task.cancelled() else engine.abandon(pending, gone)
    )
    try:
        return await pending.outcomes
    finally:
        timer.cancel()
        watcher.cancel()
        engine.abandon(pending, gone)  # where this task was cancelled; else nothing is left


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
