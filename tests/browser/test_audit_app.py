"""The audit app as people use it: filter a group, open the four panes, run a query; and hostile text does nothing."""

import re

import pytest

from r3l.audit.report import write_report
from r3l.store.stage import Store
from tests.browser.conftest import VIEWS
from tests.support.audit_world import commit_world

pytestmark = pytest.mark.slow
PAGES = (
    "/", "/run/demo", "/run/demo/groups", "/run/demo/tasks",
    "/run/demo/task?id=pick_and_place-towel-0&a=iteration%3D0/task%3D0/base%3D0&b=iteration%3D0/task%3D0/base%3D1",
    "/run/demo/reflections", "/run/demo/account", "/compare?line=demo&line=demo/bold", "/sql?q=SELECT+*+FROM+pivots",
    "/sql?q=SELECT+run,+iteration,+base_reward+FROM+iterations", "/run/demo/open?id=iteration%3D2/task%3D0/base%3D0",
    "/run/demo/tokens?source=iteration%3D1/task%3D0/base%3D0&iteration=1",
)  # fmt: skip


def test_a_group_is_filtered_and_its_four_panes_opened(page, address):
    page.goto(address)
    page.click("table.links a >> text=demo >> nth=0")
    page.click("nav.tabs >> text=Groups")
    assert page.inner_text("#total") == "18 groups"
    page.wait_for_load_state()  # the page's script sends a choice
    page.select_option("select[name=gain]", "better")
    page.wait_for_url(re.compile("gain=better"))
    shown = page.locator("#groups tbody tr")
    assert 0 < shown.count() < 18
    page.fill("input[name=iteration]", "1")
    page.press("input[name=iteration]", "Enter")
    page.wait_for_url(re.compile("iteration=1"))
    assert set(page.locator("#groups tbody tr td:first-child").all_inner_texts()) == {"1"}
    page.click("#groups th >> text=best gain")
    page.wait_for_url(re.compile("sort=best_gain"))
    page.locator("#groups tbody tr").first.locator("td").nth(4).click()
    page.wait_for_selector("table.panes.of4")
    assert next(text.split("\n")[0].lower() for text in page.locator(".pane-head .kind").all_inner_texts()).startswith(
        "base"
    )
    assert page.locator(".pane-head").count() == 4
    assert page.locator(".pivot-flag").count() == 1
    assert page.locator(".differ-flag").count() == 1
    assert page.locator("td.distilled .reply[class*=up]").count() > 0
    assert page.locator("tr.at-pivot").evaluate("row => getComputedStyle(row.children[1]).borderTopWidth") == "3px"


def test_panes_begin_at_the_pivot_and_the_prefix_unfolds(page, address):
    page.goto(f"{address}/run/demo/groups?gain=better&sort=mean_pivot")
    page.click("#groups tbody tr:first-child td.name a")
    first = page.locator(".panes tbody.turns tr").first
    said = re.fullmatch(r"(\d+)\s*pivot.*", first.locator("th").inner_text(), re.DOTALL)
    assert said
    pivot = int(said[1])
    assert pivot > 0
    assert page.locator("tbody.prefix tr").count() == pivot
    assert not page.locator("tbody.prefix tr").first.is_visible()
    page.check(".unfold")
    assert page.locator("tbody.prefix tr").first.is_visible()
    assert page.locator("td.base del").count() > 0
    assert page.locator("td.retry ins").count() > 0
    assert re.search(r"up to its number.*all of iteration \d", page.inner_text(".shades"))


def test_a_narrow_window_shows_one_pane_at_a_time(page, address):
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(f"{address}/run/demo/groups?gain=better")
    page.click("#groups tbody tr:first-child td.name a")
    page.wait_for_selector(".pane-tabs")
    page.wait_for_load_state()  # with its style sheet
    for name in ("base", "reflection", "distilled", "retry"):
        page.locator(f".pane-tabs [value={name}]").check(force=True)
        shown = {kind for kind in ("base", "reflection", "retry", "distilled") if page.is_visible(f"th.{kind}")}
        assert shown == {name}
        assert page.locator(f"tbody.turns td.{name} > *").first.is_visible()
        assert page.locator(f"td.{name}").first.bounding_box()["width"] > 280
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_a_table_with_columns_out_of_sight_casts_a_shadow_on_their_side(page, address):
    from playwright.sync_api import expect

    page.goto(f"{address}/run/demo/groups")
    table = page.locator(".scroll").first
    expect(table).to_have_css("box-shadow", "none")
    page.set_viewport_size({"width": 420, "height": 800})
    expect(table).to_have_css("box-shadow", re.compile(" -9px "))
    table.evaluate("table => table.scrollLeft = 10000")
    expect(table).to_have_css("box-shadow", re.compile(" 9px "))


def test_a_query_is_written_and_run(page, address):
    page.goto(f"{address}/sql")
    page.fill("#q", "SELECT run, retry_id, gain FROM pivots WHERE branch = '' ORDER BY retry_id LIMIT 3")
    page.press("#q", "Control+Enter")
    page.wait_for_selector("#answer")
    assert page.locator("#answer tbody tr").count() == 3
    page.locator("#answer a").first.click()
    page.wait_for_selector("table.panes")
    page.goto(f"{address}/sql")
    page.click("ol.questions li:nth-child(2) a")
    page.wait_for_selector("#answer")
    assert "pivot_turn" in page.inner_text("#answer thead")


def test_a_chart_tells_its_values_under_the_mouse(page, address):
    page.goto(f"{address}/run/demo")
    strip = page.locator("svg.chart").first.locator(".at").nth(1)
    assert not strip.locator("text.head").is_visible()
    strip.locator(".hit").hover()
    assert strip.locator("text.head").is_visible()
    assert strip.locator("text.head").text_content() == "iteration 1"


def test_hostile_text_is_shown_and_does_nothing(page, address):
    page.goto(f"{address}/run/demo/open?id=iteration%3D0/task%3D0/base%3D0")
    shown = page.locator("td.base .reply .text").all_inner_texts()
    assert any("<script>window.harmed = true</script>" in text for text in shown)
    assert any("⟨U+001B⟩[2J" in text and "⟨U+202E⟩gnp.exe" in text for text in shown)
    assert page.evaluate("window.harmed") is None
    assert page.locator("img, iframe").count() == 0
    assert page.locator("script").count() == 1
    assert "characters not shown" in page.inner_text(".cut >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.click(".cut a >> nth=0")
    assert page.evaluate("document.contentType") == "text/plain"
    assert len(page.inner_text("body")) > 1_000_000


@pytest.mark.parametrize("page", VIEWS, ids=lambda view: f"{view[0]}-{view[1]}", indirect=True)
def test_every_page_fits_its_window_and_can_be_read(page, address):
    for path in PAGES:
        page.goto(address + path)
        width = page.viewport_size["width"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        ground, ink = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert contrast(ground, ink) > 7, path
        for css in ("a", ".sub", ".pill.good", ".pill.bad"):
            for found in page.locator(f"main {css}").all()[:3]:
                assert contrast(*found.evaluate(COLOURS)) > 3, (path, css)


COLOURS = """element => {
  let under = element;
  const clear = one => getComputedStyle(one).backgroundColor.startsWith("rgba(");
  while (clear(under) && under.parentElement) under = under.parentElement;
  return [getComputedStyle(under).backgroundColor, getComputedStyle(element).color];
}"""


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two CSS colours."""
    lights = []
    for colour in (first, second):
        channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (
            value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels
        )
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_a_report_opens_from_a_file_without_a_network(page, tmp_path):
    store = Store.open(str(tmp_path / "store"))
    commit_world(store, iterations=2, tasks=4, hostile=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(write_report(store, "demo", tmp_path / "demo.html").as_uri())
    assert [url for url in asked if not url.startswith("file:")] == []
    assert page.locator("table.panes").count() == 10
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
