"""The form of the Prefect UI starts a run on a real server and worker, and the UI shows what it came to."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from r3l.store.catalog import connect
from r3l.store.stage import Store
from tests.browser.conftest import VIEWS
from tests.browser.serving import opened
from tests.support.prefect_world import Served, served, wait

ROOT = Path(__file__).parents[2]
RUN_S, TRIES = 400, 5
WAIT_MS = 120_000
ENVIRONMENT, ROLLOUT = 1, 3  # their places among the sections that can be set in a tab
FORM = {"Run": "clicked", "Tasks": "1", "Group size": "2", "Max turns": "8"}


@pytest.fixture(scope="module")
def server(chromium, tmp_path_factory) -> Iterator[Served]:
    """That of `r3l server`, with all that `infra/prefect.sh` makes, where the example of a plug-in is installed."""
    folder = tmp_path_factory.mktemp("server")
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT), str(with_example(folder))]))
    variables = {"R3L_STORE": str(folder / "store"), "PYTHONPATH": paths}
    with served(folder, [["bash", "infra/prefect.sh"]], guarded=True, **variables) as found:
        yield found


def with_example(folder: Path) -> Path:
    """A folder that holds the example package as an installer leaves it: its module and what it says of itself."""
    site = folder / "site"
    about = site / "r3l_guess-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: r3l-guess\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("[r3l.environments]\nguess = r3l_guess:GuessWorld\n")
    shutil.copy(ROOT / "tests" / "example_plugin" / "r3l_guess.py", site)
    return site


def field(page, title: str):
    """The input of a form's setting, found by its title."""
    label = page.locator("label", has_text=re.compile(f"^{title} \\(Optional\\)$")).first
    return page.locator(f"#{label.get_attribute('for')}")


def open_form(server: Served, page) -> str:
    """Go to the form of the deployment `r3l/iterate` with the server's key. Returns the address of the UI."""
    deployment = server.answer("GET", "/deployments/name/r3l/iterate").json()["id"]
    ui = server.api.removesuffix("/api")
    page.goto(f"{ui}/v2/deployments/deployment/{deployment}/run")
    page.locator("input").first.fill(server.key)  # the UI asks for the password
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/v2/deployments|/v2/dashboard|/v2/$"))
    page.goto(f"{ui}/v2/deployments/deployment/{deployment}/run")
    page.get_by_role("tab", name="Preset").first.wait_for()
    return str(ui)


def submit(page) -> None:
    """Press the button. SQLite answers 503 while it is busy: Prefect's client then asks again, its form leaves that to
    the person."""
    for _ in range(TRIES):
        with page.expect_response(re.compile("create_flow_run")) as answer:
            page.get_by_role("button", name="Submit").click()
        if answer.value.ok:
            return
        assert answer.value.status == 503, answer.value.text()
    raise AssertionError(f"the server was busy {TRIES} times")


def asked_for_slots(server: Served) -> int:
    """How often the flow run's log says that a stage asks for a slot of the engine."""
    return sum("asks for a slot of r3l-engine" in one["message"] for one in server.asked("logs", limit=200))


@pytest.fixture
def page(browser):
    """Not the page of the other tests: Prefect's UI has complaints of its own, and asks for addresses that are not
    there offline."""
    with opened(browser, *VIEWS[0]) as found:
        found.set_default_timeout(WAIT_MS)
        yield found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_form_starts_a_run_and_its_artifacts_are_shown(server, page):
    limits = [limit["name"] for limit in server.asked("v2/concurrency_limits")]
    assert sorted(name for name in limits if name.startswith("r3l-")) == ["r3l-engine", "r3l-gpu"]
    assert sorted(one["name"] for one in server.asked("automations")) == ["r3l crashed runs", "r3l hung runs"]
    ui = open_form(server, page)
    tall = page.evaluate("Math.max(...[...document.querySelectorAll('*')].map(one => one.scrollHeight))")
    assert tall < 3000  # 12,806 px before it was folded
    for section in (ENVIRONMENT, ROLLOUT):
        page.get_by_role("tab", name="Set here").nth(section).click()
    for title, value in FORM.items():
        field(page, title).fill(value)
    submit(page)
    state = wait("the flow run", RUN_S, server.ended)
    assert state["type"] == "COMPLETED", state

    (run,) = server.asked("flow_runs")
    assert run["name"] == "clicked iteration=0"
    page.goto(f"{ui}/v2/runs/flow-run/{run['id']}?tab=Artifacts")
    page.wait_for_selector("text=r3l-clicked-iteration")
    (shown,) = (
        one["id"]
        for one in server.asked("artifacts")
        if (one["key"], one["flow_run_id"]) == ("r3l-clicked-iteration", run["id"])
    )
    page.goto(f"{ui}/v2/artifacts/artifact/{shown}")
    page.get_by_role("heading", name="clicked, iteration 0").first.wait_for()
    with connect(Store.open(str(server.folder / "store")), ["clicked"]) as connection:
        ((bases, reward),) = connection.execute("SELECT count(*), round(avg(reward), 3) FROM base").fetchall()
    assert bases == 1
    assert f"{reward:.3f}" in page.locator("tr", has_text="base reward").first.inner_text()
    assert page.locator("img[alt='trend of clicked']").evaluate("image => image.naturalWidth") > 600
    wait("the log, which a busy server has later than the state", 60, lambda: asked_for_slots(server) >= 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_form_has_the_kind_and_the_settings_of_an_installed_plugin(server, page):
    open_form(server, page)
    page.get_by_role("tab", name="Set here").nth(ENVIRONMENT).click()
    page.get_by_text("Only guess. The biggest number, 1 to 1000. Default: 15.").wait_for()
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1]  # no row of tabs makes it scroll sideways
