"""Puts the application together: routes, middleware, error handlers, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from multi_exit.bundle import load_bundle
from multi_exit.errors import PatamarError
from service.api import router
from service.errors import problem_of, problem_of_status
from service.middleware import Accounts, ApiKey, BodyLimit, EarlyRefusal
from service.openapi import describe
from service.responses import problem_response
from service.served import Served
from service.settings import Settings

logger = logging.getLogger(__name__)

StartFailed = Callable[[PatamarError], object]


def create_app(settings: Settings, *, start_failed: StartFailed = lambda error: None) -> FastAPI:
    """The application. It answers /healthz at once and takes requests when /readyz says yes.

    start_failed: called, on the event loop, where the bundle cannot be run; without it the
    application stays up and /readyz tells the reason. Raises BundleError for a bundle that is
    missing or damaged, ConfigurationError where settings do not fit it.
    """
    served = Served.make(settings, load_bundle(settings.bundle))
    app = FastAPI(
        title="Patamar",
        version=_version(),
        description="Text classification that stops thinking when it knows.",
        docs_url=None,  # FastAPI's pages load their scripts from elsewhere (decision 022)
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(served, start_failed),
    )
    app.state.served = served
    app.include_router(router)
    app.add_exception_handler(PatamarError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_error)
    # Added from the inside out: accounts see what the others refuse.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(EarlyRefusal, refusal=lambda: served.readiness.overload)
    if settings.api_key is not None:
        app.add_middleware(ApiKey, key=settings.api_key.get_secret_value())
    app.add_middleware(Accounts, metrics=served.metrics)
    _describe_once(app, served)
    return app


def _lifespan(
    served: Served, start_failed: StartFailed
) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # In the background: probes must be answered while a large bundle warms.
        starting = asyncio.create_task(_start(served, start_failed))
        try:
            yield
        finally:
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            await served.readiness.stop()
            served.tokenisation.close()
            served.watch.close()

    return lifespan


async def _start(served: Served, start_failed: StartFailed) -> None:
    readiness = served.readiness
    try:
        await readiness.start(served.bundle, served.encoder, served.settings, served.metrics)
    except PatamarError as error:
        readiness.detail = f"the start failed: {error}"
        logger.error("the start failed: %s", error)
        start_failed(error)
    except Exception as error:
        readiness.detail = "the start failed by a bug; the log tells more"
        logger.exception("the start failed by a bug")
        start_failed(PatamarError(f"the start failed by a bug: {error!r}"))


async def _answer_error(request: Request, error: Exception) -> Response:
    return problem_response(request.scope, problem_of(error))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for this class alone"
    details = {
        404: "There is nothing at this address; /docs lists what there is.",
        405: "This address does not take this method; Allow lists those that it takes.",
    }
    detail = details.get(error.status_code, "The request was refused.")
    problem = problem_of_status(error.status_code, detail, error.headers or {})
    return problem_response(request.scope, problem)


def _describe_once(app: FastAPI, served: Served) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = describe(
                app,
                needs_key=served.settings.api_key is not None,
                takes_pairs=served.bundle.manifest.takes_pairs,
            )
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _version() -> str:
    try:
        return version("patamar")
    except PackageNotFoundError:
        return "0"  # run from a source tree that is not installed
