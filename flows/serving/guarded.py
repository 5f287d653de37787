"""Prefect's API and UI as `r3l server` serves them: under this machine's names, with a key, and not to pages of other
sites."""

from collections.abc import Sequence

import uvicorn
from fastapi import FastAPI
from prefect.server.api.server import create_app
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount

from r3l.audit.web.access import HOSTS, RefuseOtherSites
from r3l.system.memory import collect_less

# Pages of Prefect's that answer without a key, and load scripts of other hosts.
DESCRIPTIONS = {"/docs", "/docs/oauth2-redirect", "/openapi.json", "/redoc"}


def guarded_app(origins: Sequence[str], names: Sequence[str] = ()) -> FastAPI:
    """Make Prefect's app, which asks for its key, answering only to the names of this machine and `names`, and to pages
    of `origins`."""
    app = create_app(final=True)
    mounted = [route.app for route in app.routes if isinstance(route, Mount)]
    for served in (app, *(one for one in mounted if isinstance(one, Starlette))):
        served.router.routes[:] = [one for one in served.routes if getattr(one, "path", "") not in DESCRIPTIONS]
    app.add_middleware(RefuseOtherSites, origins=origins)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*HOSTS, *names], www_redirect=False)
    return app


def serve(host: str, port: int, origins: Sequence[str], names: Sequence[str] = ()) -> None:
    """Serve until interrupted. The settings of `flows/prefect_settings.py` are in the environment before this module is
    imported."""
    # A collection that ends a cursor of SQLite's holds all threads until that connection's statement is done. Where the
    # statement waits for one of theirs, the server stands still until its time is up.
    collect_less()
    uvicorn.run(guarded_app(origins, names), host=host, port=port, timeout_keep_alive=5, log_level="warning")
