"""Commands for the Prefect server of this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from flows import prefect_settings
from flows.cli.options import Port
from flows.cli.screen.console import say, screen
from r3l.errors import ConfigError
from r3l.system import pasted


def up(port: Port = 4200) -> None:
    """Start Prefect's server and a worker in the background, and register the flows: all that a run from the UI
    needs."""
    from flows.serving import background

    console, folder, began = screen(stderr=True), prefect_settings.prefect_home(), time.monotonic()
    own = background.up(
        folder, port, lambda step: console.print(f"{time.monotonic() - began:4.0f} s  {step}", soft_wrap=True)
    )
    console.print(
        f"Prefect's UI   {own.ui}\nits password   {own.key}\nlog files      {folder}\nend it with    "
        f"{pasted.r3l('down')}",
        soft_wrap=True,
    )


def down() -> None:
    """Stop what `r3l up` started. Active runs end; the next start continues from the last committed shard."""
    from flows.serving import background

    names = background.down(prefect_settings.prefect_home())
    say(f"stopped: {', '.join(names)}" if names else "nothing runs")


def server(
    port: Port = 4200,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="a host name to accept in addition to localhost; may be repeated")
    ] = None,
) -> None:
    """Serve Prefect's API and UI until Ctrl + C, under this machine's names, with a key, and to no page of
    another site."""
    from flows.own_server import KEY, Own, forget, key_of, own_server, remember
    from r3l.store.files.process import mark
    from r3l.system.ports import refuse_taken

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


def register() -> None:
    """Create the work pool, deployments, limits and automations on the server. Running it again changes nothing."""
    from flows.serving import background

    background.register()


def prefect(context: typer.Context) -> None:
    """Run a command of Prefect against the project's server, e.g. `r3l prefect deployment run r3l/iterate`."""
    raise typer.Exit(
        subprocess.run(
            [str(Path(sys.executable).with_name("prefect")), *context.args], env=prefect_settings.loud(), check=False
        ).returncode
    )
