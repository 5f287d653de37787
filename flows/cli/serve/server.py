"""`r3l server`: a Prefect server in this process, which requires a key."""

import os
from typing import Annotated

import typer

from flows import prefect_settings
from flows.cli.options import Port
from flows.cli.screen.console import screen
from flows.own_server import KEY, Own, forget, key_of, own_server, remember
from r3l.errors import ConfigError
from r3l.store.files.process import mark
from r3l.system import pasted
from r3l.system.ports import refuse_taken


def server(
    port: Port = 4200,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="a host name to accept in addition to localhost; may be repeated")
    ] = None,
) -> None:
    """Serve Prefect's API and UI until Ctrl + C, under this machine's names, with a key, and to no page of
    another site."""
    folder = prefect_settings.prefect_home()
    if own := own_server(folder):
        raise ConfigError(f"a server is already running at {own.ui}; end it with `{pasted.r3l('down')}`")
    refuse_taken(port, host)
    own = Own(f"http://127.0.0.1:{port}/api", key_of(folder), {"server": mark()})
    names = name or []
    origins = [
        f"{scheme}://{one}"
        for scheme in ("http", "https")
        for host_name in ("127.0.0.1", "localhost", *names)
        for one in (host_name, f"{host_name}:{port}")
    ]
    os.environ |= {
        prefect_settings.URL: own.api,
        prefect_settings.CLIENT_KEY: own.key,
        prefect_settings.SERVER_KEY: own.key,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(origins),
        "PREFECT_SERVER_API_PORT": str(port),
    }
    for quiet in prefect_settings.LOGGING:
        os.environ.pop(quiet, None)
    from flows.serving.guarded import serve

    remember(folder, own)
    console = screen(stderr=True)
    password = own.key if console.is_terminal else f"that stands in {folder / KEY}"  # no key in a log file
    console.print(f"{own.ui} asks for the password {password}; Ctrl + C ends it", soft_wrap=True)
    try:
        serve(host, port, origins, names)
    finally:
        forget(folder)
