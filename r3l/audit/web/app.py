"""The audit app: a store in the browser. Read-only, on loopback or behind a key, no build step, nothing fetched from
elsewhere."""

import threading
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import duckdb
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from r3l.audit.overview import Overview
from r3l.audit.pages import environment
from r3l.audit.reader import Reader
from r3l.audit.web import line_routes, store_routes
from r3l.audit.web.access import HOSTS, AskForKey, RefuseOtherSites, is_loopback, key_for
from r3l.audit.web.app_state import AppState
from r3l.audit.web.sandbox import SqlBox, worked_questions
from r3l.errors import R3LError, StoreError
from r3l.store.stage import Store
from r3l.system.home import shipped_root
from r3l.system.ports import refuse_taken

QUESTIONS = shipped_root() / "data" / "queries"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; base-uri "
        "'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = {"audit.css": "text/css", "panes.css": "text/css", "audit.js": "text/javascript", "icon.svg": "image/svg+xml"}


def make_app(store: Store, questions: Path = QUESTIONS, names: Sequence[str] = (), key: str = "") -> FastAPI:
    """Make the app over a store. It answers GET only, and only to the names of this machine and `names` (a foreign page
    can't read it by rebinding); with a `key`, only to who sends it as the password of HTTP's basic authentication."""
    app = FastAPI(title="r3l audit", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.audit = AppState(
        Reader(store), Overview(store), environment(), worked_questions(questions), SqlBox(store)
    )
    if key:
        app.add_middleware(AskForKey, key=key)
    app.add_middleware(RefuseOtherSites)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*HOSTS, *names])
    app.middleware("http")(with_headers)
    app.include_router(store_routes.router)
    app.include_router(line_routes.router)
    app.get("/static/{name}")(static)
    app.get("/health")(health)
    for kind, answer in (
        (R3LError, refuse),
        (RequestValidationError, misread),
        (HTTPException, absent),
        (duckdb.Error, error_page),
    ):
        app.add_exception_handler(kind, answer)
    return app


def serve(
    store: Store,
    port: int = 4300,
    open_browser: bool = True,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
    begins: Callable[[], None] = lambda: None,
) -> None:
    """Serve until interrupted: on loopback to whoever is on this machine, on any other address by the key of
    R3L_AUDIT_KEY. `begins` is called once nothing is left that could refuse it.

    Raises:
        ConfigError: another address than loopback and no key, or a port that is taken.
    """
    app = make_app(store, names=names, key=key_for(host))
    refuse_taken(port, host)
    begins()
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=3))
    if open_browser and is_loopback(host):
        threading.Timer(0.8, webbrowser.open, [f"http://{host}:{port}/"]).start()
    try:
        server.run()
    finally:
        app.state.audit.close()


async def with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Set the content security policy on every answer. A route may be stricter, never laxer."""
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def static(name: str) -> Response:
    """Serve the style sheet, the script and the icon; there is nothing else to serve."""
    if name not in STATIC:
        raise HTTPException(404)
    return Response(package_files("r3l.audit").joinpath("static", name).read_bytes(), media_type=STATIC[name])


def health() -> Response:
    """Answer health checks without a key; say only that the app runs."""
    return Response(status_code=204)


def problem(request: Request, status: int, title: str, message: str) -> HTMLResponse:
    app_state: AppState = request.app.state.audit
    return app_state.page("problem.html", status=status, title=title, message=message)


async def refuse(request: Request, error: Any) -> HTMLResponse:
    return problem(request, 404 if isinstance(error, StoreError) else 400, "That can't be shown", str(error))


async def error_page(request: Request, error: Any) -> HTMLResponse:
    return problem(request, 500, "The store can't be read", f"{error}\n\n`r3l check` names what is damaged.")


async def misread(request: Request, error: Any) -> HTMLResponse:
    wrong = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
    return problem(request, 422, "The address can't be read", wrong)


async def absent(request: Request, error: Any) -> HTMLResponse:
    return problem(request, error.status_code, "There is no such page", f"{request.url.path}: {error.detail}")
