"""`r3l audit`: a store in the browser."""

from typing import Annotated

import typer

from flows.cli.options import Root
from flows.cli.screen.console import screen
from r3l.errors import ConfigError
from r3l.store.stage import Store


def audit(
    word: Annotated[str, typer.Argument(metavar="[STORE]", help="the store; or --store")] = "",
    store: Root = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port on this machine")] = 4300,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="do not open the browser")] = False,
    host: Annotated[
        str, typer.Option(help="address to listen on; beyond loopback the key in R3L_AUDIT_KEY is required")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="a host name to accept in addition to localhost; may be repeated")
    ] = None,
) -> None:
    """Look at a store in the browser: iterations, groups, the four panes, reflections, the account, SQL. Read-only."""
    from r3l.audit.web.app import serve

    if word and store and word != store:
        raise ConfigError(f"two stores are named, {word!r} and --store {store!r}: leave one out")
    run_store = Store.open(word or store, reading=True)
    address = f"http://{host}:{port}/ shows {run_store.root}; Ctrl + C ends it"
    serve(run_store, port, not no_browser, host, name or [], begins=lambda: screen(stderr=True).print(address))
