"""The run that ships is small, sound and asked: the page of worked questions has its answers."""

from pathlib import Path

import pytest

from infra.pages.cookbook import DATA, answer, cookbook
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.support.sample_run import LARGEST, LEFT_BEHIND, RUN

QUERIES = sorted((DATA / "queries").glob("*.sql"))


@pytest.fixture(scope="module")
def store() -> Store:
    return Store.open(str(DATA / "sample_run"))


def test_the_answers_of_the_page_are_those_of_the_run(store):
    page = (DATA / "queries" / "README.md").read_text(encoding="utf-8")
    assert page == cookbook(store), "run: python -m infra.pages.cookbook > data/queries/README.md"


def test_every_question_has_an_answer_on_it(store):
    assert QUERIES
    with connect(store) as connection:
        unanswered = [path.name for path in QUERIES if not connection.execute(path.read_text()).fetchall()]
    assert unanswered == []


def test_it_is_two_sound_iterations_and_small(store):
    assert check_run(store, RUN) == []
    assert {ref.iteration for ref in store.stages(RUN, "")} == {0, 1}
    files = [path for path in Path(store.root).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST
    assert not {part for path in files for part in path.parts} & set(LEFT_BEHIND)


def test_an_answer_is_a_table_that_no_text_breaks():
    rows = [{"a": "x | <b>`y`\nz", "b": 0.123456789}, *({"a": None, "b": k} for k in range(9))]
    shown = answer(["a", "b"], rows).splitlines()
    assert shown[:3] == ["| a | b |", "|---|---|", "| x \\| \\<b>\\`y\\` z | 0.123457 |"]
    assert shown[-1] == "… and 2 more rows."
