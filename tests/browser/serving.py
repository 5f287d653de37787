"""A served store and a headless Chromium, for the browser tests and the pictures of README.md."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from r3l.audit.reader import Reader
from r3l.audit.web.app import make_app
from r3l.store.stage import Store

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def served(store: Store) -> Iterator[tuple[str, Reader]]:
    """The audit app over a store: its address on loopback, and its reader."""
    app = make_app(store)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", app.state.audit.reader
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def started(chromium: str) -> Iterator[Any]:
    """A headless browser without a page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, width: int, scheme: str) -> Iterator[Any]:
    """An empty page of a fresh profile."""
    context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)
    yield context.new_page()
    context.close()
