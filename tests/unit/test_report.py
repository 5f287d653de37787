import itertools
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from r3l.audit import report
from r3l.audit.attempts import Group, group, panes
from r3l.audit.charts.iterations import CHARTS
from r3l.audit.lines import Line
from r3l.audit.reader import Reader
from r3l.audit.report import telling, write_report
from r3l.errors import StoreError
from r3l.store.index import readable as index
from r3l.store.stage import Store
from tests.support.audit_world import commit_world
from tests.support.store_iteration import commit_iteration


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(made, "small")
    commit_world(made, "demo", iterations=3, tasks=6, hostile=True)
    return made


class Fetches(HTMLParser):
    """What a browser would fetch, follow or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "img", "iframe", "link", "object"}:
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name in {"src", "action"} or name.startswith("on")]
        self.found += [str(value) for name, value in attrs if name == "href" and not str(value).startswith("#")]


def test_each_telling_attempt_is_read_of_its_iteration_alone_and_is_the_same(store, monkeypatch):
    reader, iterations_read = Reader(store, ["demo"]), []

    def asked(near: Reader, line: Line, iteration: int, group_id: str) -> Group:
        iterations_read.append((near.at, iteration))
        return group(near, line, iteration, group_id)

    monkeypatch.setattr(report, "group", asked)
    for one in telling(reader, Line("demo")):
        whole = group(reader, Line("demo"), one.group.iteration, one.group.group_id)
        assert (one.group, one.panes) == (whole, panes(reader, whole, one.attempt))
    assert len(iterations_read) == 10
    assert all(at == iteration for at, iteration in iterations_read)
    reader.close()


def test_a_report_is_one_file_that_needs_nothing_else(store, tmp_path):
    page = write_report(store, "demo", tmp_path / "new" / "demo.html").read_text()
    assert Fetches(page).found == []
    assert "url(" not in page
    assert "default-src 'none'" in page
    assert page.count('<table class="panes') == 10
    anchors = re.findall('href="#([a-z0-9-]+)"', page)
    assert {"charts", "account", "settings", "attempt-1", "attempt-10"} <= set(anchors)
    assert [name for name in anchors if f'id="{name}"' not in page] == []
    assert page.count('class="unfold"') >= 5
    assert page.count('<svg class="chart"') == len(CHARTS) - 1  # no update of one step has a drift
    assert "<b>Drift</b>" not in page
    assert "no value" not in page
    assert len(page) < 2_000_000


def test_a_report_is_of_one_moment(store, tmp_path, monkeypatch):
    looked, look = [], index.index_run
    monkeypatch.setattr(
        index, "index_run", lambda *asked, **how: looked.append(how.get("at", asked[-1])) or look(*asked, **how)
    )
    monkeypatch.setattr("r3l.audit.reader.time", SimpleNamespace(monotonic=itertools.count(step=60).__next__))
    write_report(store, "demo", tmp_path / "demo.html")
    assert looked.count(None) == 1


def test_the_figures_are_those_of_the_store(store, tmp_path):
    page = write_report(store, "small", tmp_path / "small.html").read_text()
    assert "4 base attempts on 2 tasks" in re.sub(r"\s+", " ", page)
    assert "50.0 % of 2 retries improved on their base (gain +0.50), from turn 1.5" in re.sub(r"\s+", " ", page)
    assert page.count('<table class="panes') == 2
    assert "Base reward 0.250; success 25.0 %." in page  # of one iteration no course


def test_telling_attempts_are_what_they_are_called(store):
    reader = Reader(store)
    found = [*telling(reader, Line("demo"))]
    reader.close()
    assert len({one.attempt.name for one in found}) == len(found) == 10
    for one in found:
        if one.why == "The retry solved what its base had not":
            assert (one.attempt.base["success"], one.attempt.retry["success"]) == (False, True)
        if one.why == "The retry did worse than its base":
            assert one.attempt.gain < 0
    assert len({one.why for one in found}) >= 3


def test_a_report_of_an_unknown_run_is_refused(store, tmp_path):
    with pytest.raises(StoreError, match="nope: not in"):
        write_report(store, "nope", tmp_path / "nope.html")
    assert not (tmp_path / "nope.html").exists()
