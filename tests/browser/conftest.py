"""A headless Chromium and a served store. Both are skipped with a reason where there is no browser."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from r3l.audit.app import make_app
from r3l.store.stage import Store
from tests.audit_world import World, commit, commit_world

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
VIEWS = [(width, scheme) for width in (1280, 1920) for scheme in ("light", "dark")]


@pytest.fixture(scope="session")
def chromium() -> str:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: uv pip install 'r3l[dev]'")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return found or pytest.skip("there is no chromium: apt-get install chromium")


@pytest.fixture(scope="session")
def address(tmp_path_factory) -> Iterator[str]:
    """The audit app over a run with hostile text and a branch of it."""
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_world(store, iterations=3, tasks=6, hostile=True)
    branch = {stage: rows for stage, rows in World(2, 6, top=5.0).tables().items() if stage in ("credit", "training_rows", "updates")}
    commit(store, "demo", 2, branch, branch="bold", settings={"alpha": 5.0})
    server = uvicorn.Server(uvicorn.Config(make_app(store), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(params=VIEWS[:1], ids=lambda view: f"{view[0]}-{view[1]}")
def page(request, chromium, tmp_path):
    """A page of a fresh profile; whatever it says on its console, or fails to load, is a failure."""
    with opened(chromium, tmp_path / "profile", *request.param) as found:
        complaints: list[str] = []
        found.on("console", lambda message: complaints.append(message.text))
        found.on("pageerror", lambda error: complaints.append(str(error)))
        found.on("requestfailed", lambda asked: complaints.append(asked.url))
        yield found
    assert complaints == []


@contextmanager
def opened(chromium: str, profile: Path, width: int, scheme: str) -> Iterator[Any]:
    """An empty page of a fresh profile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        context = play.chromium.launch_persistent_context(
            str(profile),
            executable_path=chromium,
            headless=True,
            args=FLAGS,
            viewport={"width": width, "height": 1000},
            color_scheme=scheme,
        )
        yield context.new_page()
        context.close()
