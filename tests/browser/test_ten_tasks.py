"""What people come for, each within four clicks of the front page."""

import pytest

pytestmark = pytest.mark.slow


class Visitor:
    """Somebody who starts at the front page. Choosing in a list and pressing a button count as a click; typing
    doesn't."""

    def __init__(self, page, address: str) -> None:
        self.page, self.clicks = page, 0
        page.goto(address)

    def click(self, place: str) -> None:
        self.clicks += 1
        self.page.locator(place).first.click()

    def choose(self, place: str, value: str) -> None:
        self.clicks += 1
        self.page.wait_for_selector(place)
        self.page.wait_for_load_state()  # the page's script sends the choice
        with self.page.expect_navigation():
            self.page.select_option(place, value)

    def shown(self, place: str):
        self.page.wait_for_selector(place)  # a list is not waited for, and a click may still be opening the page
        return self.page.locator(place)

    def run(self) -> None:
        self.click("table.lines td.name a:has-text('demo')")

    def tab(self, name: str) -> None:
        self.run()
        self.click(f"nav.tabs >> text={name}")

    def group(self) -> None:
        self.tab("Groups")
        self.click("#groups tbody tr:has-text('mixed') td.name a")


@pytest.fixture
def visitor(page, address):
    found = Visitor(page, address)
    yield found
    assert 0 < found.clicks <= 4


def test_the_best_retry_is_found(visitor):
    visitor.tab("Groups")
    visitor.click("#groups th >> text=best gain")
    visitor.page.wait_for_url("**sort=best_gain**")
    visitor.click("#groups tbody td.name a")
    assert "+1.00" in visitor.page.inner_text(".attempts [aria-current]")


def test_the_four_panes_are_opened(visitor):
    visitor.group()
    assert visitor.shown(".pane-head").count() > 1


def test_the_weight_of_a_token_is_explained(visitor):
    visitor.group()
    visitor.click(".pane-head >> text=token by token")
    assert "Role" in visitor.page.inner_text("main")
    assert visitor.shown("table.tokens tbody tr").count() > 0


def test_two_runs_are_compared(visitor):
    visitor.click("nav >> text=Side by side")
    visitor.click("label:has-text('demo') input")
    visitor.click("label:has-text('demo/bold') input")
    visitor.click("button >> text=compare")
    assert visitor.shown(".beside .card").count() == 2
    first = visitor.shown(".beside .tiles .tile:first-child .what").all_inner_texts()
    assert first == ["held-out success"] * 2
    assert visitor.shown("svg.chart").count() > 5


def test_a_reflection_that_can_not_be_read_is_found(visitor):
    visitor.tab("Reflections")
    visitor.choose("select[name=fault]", "can't be read")
    visitor.click("table.worst td.name a")
    assert "no JSON object in the reply" in visitor.page.inner_text("td.reflection")


def test_a_trajectory_leads_to_its_optimiser_step(visitor):
    visitor.group()
    visitor.click(".pane-head >> text=optimiser step")
    assert "Optimiser step 3" in visitor.page.inner_text("#step")


def test_a_question_of_ones_own_is_drawn_as_a_chart(visitor):
    visitor.click("nav >> text=SQL")
    visitor.page.fill("#q", "SELECT branch, iteration, base_reward FROM iterations")
    visitor.click("button >> text=run")
    assert visitor.shown(".answer-chart svg.chart path.line").count() > 0
    link = visitor.page.locator("main a >> text=CSV").get_attribute("href")
    rows = visitor.page.request.get(f"{visitor.page.url.split('/sql')[0]}{link}").text().splitlines()
    assert rows[0] == "branch,iteration,base_reward"
    assert len(rows) > 3


def test_a_shared_link_shows_the_same_panes(visitor):
    visitor.group()
    visitor.click(".attempts tbody tr:last-child td.name a")
    visitor.page.wait_for_url("**attempt=**")
    shown, address = visitor.page.inner_text(".panes"), visitor.page.url
    visitor.page.goto(address)
    assert visitor.page.inner_text(".panes") == shown


def test_success_is_shown_by_task_type(visitor):
    visitor.tab("Tasks")
    cells = visitor.shown("table.heat td").all_inner_texts()
    assert [text for text in cells if text.endswith("%")]


def test_a_task_is_followed_over_the_iterations(visitor):
    visitor.tab("Tasks")
    visitor.click("#often td.name a")
    assert visitor.shown(".mark").count() >= 4
    visitor.click("button >> text=side by side")
    assert visitor.shown("table.pair .pane-head").count() == 2
