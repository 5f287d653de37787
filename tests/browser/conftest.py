"""A headless Chromium and a served store. Both are skipped with a reason where there is no browser."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from r3l.store.stage import Store
from tests.browser.serving import opened, served, started
from tests.support.audit_world import World, commit, commit_world

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
    branch = {
        stage: rows
        for stage, rows in World(2, 6, top=5.0).tables().items()
        if stage in ("credit", "training_rows", "updates")
    }
    commit(store, "demo", 2, branch, branch="bold", settings={"alpha": 5.0})
    with served(store) as (found, _):
        yield found


@pytest.fixture(scope="module")
def browser(chromium) -> Iterator[Any]:
    """One for the tests of a file: while it runs, its event loop is that of this thread."""
    with started(chromium) as found:
        yield found


def failed(asked: Any) -> list[str]:
    """What a request that failed is called; nothing where the browser gave it up, as it does with the icon of a page
    that is left."""
    return [] if asked.failure == "net::ERR_ABORTED" else [f"{asked.url}: {asked.failure}"]


@pytest.fixture(params=VIEWS[:1], ids=lambda view: f"{view[0]}-{view[1]}")
def page(request, browser):
    """A page of a fresh profile; whatever it says on its console, or fails to load, is a failure."""
    with opened(browser, *request.param) as found:
        complaints: list[str] = []
        found.on("console", lambda message: complaints.append(message.text))
        found.on("pageerror", lambda error: complaints.append(str(error)))
        found.on("requestfailed", lambda asked: complaints.extend(failed(asked)))
        yield found
        found.wait_for_load_state()  # what is still loading when the page is closed counts as failed
    assert complaints == []
