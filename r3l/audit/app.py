"""The audit app: a store in the browser. Read-only, loopback only, no build step, nothing fetched from elsewhere."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Awaitable, Callable
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

from r3l.audit import line_routes, store_routes
from r3l.audit.desk import Desk
from r3l.audit.pages import environment
from r3l.audit.reader import Reader
from r3l.audit.sandbox import worked_questions
from r3l.errors import R3LError, StoreError
from r3l.store.stage import Store

HOSTS = ["127.0.0.1", "localhost", "[::1]"]
QUESTIONS = Path(__file__).parents[2] / "data" / "queries"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = {"audit.css": "text/css", "audit.js": "text/javascript", "icon.svg": "image/svg+xml"}


def make_app(store: Store, questions: Path = QUESTIONS) -> FastAPI:
    """The app over a store. It answers GET only, and only to names of this machine (a foreign page can't read it by rebinding)."""
    app = FastAPI(title="r3l audit", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.desk = Desk(Reader(store), environment(), worked_questions(questions))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)
    app.middleware("http")(with_headers)
    app.include_router(store_routes.router)
    app.include_router(line_routes.router)
    app.get("/static/{name}")(static)
    for kind, answer in ((R3LError, refuse), (RequestValidationError, misread), (HTTPException, absent), (duckdb.Error, broken)):
        app.add_exception_handler(kind, answer)
    return app


def serve(store: Store, port: int = 4300, open_browser: bool = True) -> None:
    """Serve on the loopback interface until interrupted. Raises StoreError where the port is taken."""
    app = make_app(store)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    if open_browser:
        threading.Timer(0.8, webbrowser.open, [f"http://127.0.0.1:{port}/"]).start()
    try:
        server.run()
    except SystemExit as stopped:
        raise StoreError(f"port {port} of this machine can't be listened on; give another one by --port") from stopped
    finally:
        app.state.desk.reader.close()


async def with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """The content security policy on every answer. A route may be stricter, never laxer."""
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def static(name: str) -> Response:
    """The style sheet, the script and the icon; there is nothing else to serve."""
    if name not in STATIC:
        raise HTTPException(404)
    return Response(package_files("r3l.audit").joinpath("static", name).read_bytes(), media_type=STATIC[name])


def problem(request: Request, status: int, title: str, message: str) -> HTMLResponse:
    desk: Desk = request.app.state.desk
    return desk.page("problem.html", status=status, title=title, message=message)


async def refuse(request: Request, error: Any) -> HTMLResponse:
    return problem(request, 404 if isinstance(error, StoreError) else 400, "That can't be shown", str(error))


async def broken(request: Request, error: Any) -> HTMLResponse:
    return problem(request, 500, "The store can't be read", f"{error}\n\n`r3l check` names what is damaged.")


async def misread(request: Request, error: Any) -> HTMLResponse:
    wrong = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
    return problem(request, 422, "The address can't be read", wrong)


async def absent(request: Request, error: Any) -> HTMLResponse:
    return problem(request, error.status_code, "There is no such page", f"{request.url.path}: {error.detail}")
