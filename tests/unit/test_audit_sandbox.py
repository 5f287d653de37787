import math
import signal
import subprocess
import threading
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

from r3l.audit.web import sandbox, sandbox_process
from r3l.audit.web.sandbox import Answer, SqlBox, worked_questions
from r3l.errors import StoreError
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    found = SqlBox(store)
    yield found
    found.close()


def test_a_select_is_answered(box):
    answer = box.ask("SELECT base_id, gain FROM pivots ORDER BY gain DESC -- the better first")
    assert (answer.columns, answer.more) == (["base_id", "gain"], False)
    assert answer.rows == [("iteration=0/task=0/base=0", 1.0), ("iteration=0/task=1/base=1", 0.0)]


def test_rows_past_the_limit_are_left_out_and_said(box):
    answer = box.ask("FROM range(100) ORDER BY 1 DESC", rows=3)
    assert (answer.rows, answer.more) == ([(99,), (98,), (97,)], True)
    assert box.ask("FROM range(3)", rows=3).more is False


@pytest.mark.parametrize("query", [
    "SELECT 1; SELECT 2",
    "WITH gone AS (DELETE FROM stages RETURNING *) FROM gone",
    "SELECT * FROM read_text('/etc/passwd')",
    "FROM read_text('{store}x/secret')",
    "FROM read_csv('/dev/stdin')",
    "FROM python_table",
])  # fmt: skip
def test_a_question_neither_writes_nor_reads_elsewhere(box, query):
    """What `r3l.store.query` refuses is refused here, too; `test_store_user_queries` has the whole list."""
    python_table = [1]
    assert python_table
    with pytest.raises(StoreError):
        box.ask(query.replace("{store}", box.store.root))
    assert box.ask("SELECT count(*) FROM stages").rows == [(9,)]


def test_after_a_refusal_the_process_waits_for_as_long_as_it_likes(box):
    with pytest.raises(StoreError, match="nosuch"):
        box.ask("SELECT * FROM nosuch", seconds=1.0)
    [asked] = box._idle
    with suppress(subprocess.TimeoutExpired):  # past the time of the question that was refused
        assert asked.process.wait(1.0 + sandbox_process.GRACE_SECONDS + 0.4) is None
    assert box.ask("SELECT 1").rows == [(1,)]
    assert box._idle == [asked]


def test_a_process_that_was_ended_meanwhile_is_replaced(box):
    box.ask("SELECT 1")
    [asked] = box._idle
    asked.process.kill()
    asked.process.wait()
    assert box.ask("SELECT 1").rows == [(1,)]


HEAVY = "SELECT levenshtein(repeat('a', 2_000_000), repeat('b', 2_000_000))"  # DuckDB can't be interrupted in it


def test_a_query_that_hears_no_interrupt_is_stopped_in_time(box):
    with pytest.raises(StoreError, match=r"stopped after 0\.3 s"):
        box.ask(HEAVY, seconds=0.3)
    assert box.ask("SELECT 1").rows == [(1,)]  # it holds its place no longer, and nothing of it runs on
    assert len(box._idle) == 1


def test_a_query_ends_in_time_when_its_parent_is_gone(box):
    asked = sandbox.Asked(box.store.root, None, sandbox.MEMORY)
    asked.send({"sql": HEAVY, "rows": 1, "seconds": 0.2})
    assert asked._line(60, "never connected") == {}
    with pytest.raises(StoreError, match="late"):
        asked._line(0.1, "late")
    assert asked.process.wait(20) == -signal.SIGALRM  # nobody killed it
    asked.stop()


def test_memory_is_capped_by_the_kernel_as_well(box):
    small = SqlBox(box.store, memory=300 << 20)
    query = "SELECT length(repeat('a', 400_000_000 + i)) FROM range(1) t(i)"  # DuckDB's own limit is 2 GB
    with pytest.raises(StoreError, match=r"bad allocation|ended its process"):
        small.ask(query)
    assert box.ask(query).rows == [(400_000_000,)]
    assert small.ask("SELECT 1").rows == [(1,)]
    small.close()


def test_a_query_that_does_not_fit_fills_no_disk(box):
    with pytest.raises(StoreError, match=r"can't be run|ended its process"):
        box.ask("SELECT count(*) FROM (SELECT DISTINCT repeat('x', 1000) || i FROM range(20_000_000) t(i))", seconds=60)
    (asked,) = box._idle or [sandbox.Asked(box.store.root, None, sandbox.MEMORY)]
    assert sum(path.stat().st_size for path in Path(asked.folder.name).rglob("*") if path.is_file()) == 0
    assert not Path(".tmp").exists()


def test_a_place_is_given_back_whatever_happens(box, monkeypatch):
    def torn(*_):
        raise RuntimeError("a manifest is torn")

    with monkeypatch.context() as patch:
        patch.setattr(sandbox.Asked, "ask", torn)
        for _ in range(2 * sandbox.AT_ONCE):
            with pytest.raises(RuntimeError):
                box.ask("SELECT 1")
    assert box.ask("SELECT 1").rows == [(1,)]


def test_a_torn_manifest_costs_no_place_and_the_box_lives_on(tmp_path):
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    manifest = next(tmp_path.rglob("stage.json"))
    whole = manifest.read_text()
    manifest.write_text(whole[:40])
    torn = SqlBox(store)
    for _ in range(sandbox.AT_ONCE + 1):
        with suppress(StoreError):
            torn.ask("SELECT count(*) FROM stages")
    manifest.write_text(whole)
    assert torn.ask("SELECT count(*) FROM stages").rows == [(9,)]
    torn.close()


def test_a_third_question_at_once_is_refused(box, monkeypatch):
    entered, leave = threading.Semaphore(0), threading.Event()

    def waits(asked, query, rows, seconds, whole):
        entered.release()
        assert leave.wait(60)
        return Answer([], [], False, 0.0)

    monkeypatch.setattr(sandbox.Asked, "ask", waits)
    slow = [threading.Thread(target=box.ask, args=["SELECT 1"]) for _ in range(sandbox.AT_ONCE)]
    for thread in slow:
        thread.start()
    assert all(entered.acquire(timeout=60) for _ in slow)
    with pytest.raises(StoreError, match="two queries are running"):
        box.ask("SELECT 1")
    leave.set()
    for thread in slow:
        thread.join()


def test_values_come_over_as_they_are_shown(box):
    query = (
        "SELECT 1.50::DECIMAL(4, 2), sum(i), NULL, [1, 2], DATE '2026-01-02', 'inf'::FLOAT, repeat('x', 1000), "
        "true FROM range(3) t(i)"
    )
    assert box.ask(query).rows == [
        (Decimal("1.50"), 3, None, "[1, 2]", "2026-01-02", math.inf, f"{'x' * 400}… (1,000 characters)", True)
    ]


def test_a_message_cut_within_a_character_is_an_error_like_any_other(box):
    with pytest.raises(StoreError, match="can't be run"):
        box.ask("SELECT ('\ufffd' || 'n' || repeat('\ufffd', 200)) ->> '$.a'")


def test_worked_questions_are_read_from_a_folder(tmp_path):
    (tmp_path / "02_b.sql").write_text("-- What?\n-- more\nSELECT 2\n")
    (tmp_path / "01_a.sql").write_text("SELECT 1")
    found = worked_questions(tmp_path)
    assert [(one.name, one.asks, one.sql) for one in found] == [
        ("01_a", "01_a", "SELECT 1"),
        ("02_b", "What?", "SELECT 2"),
    ]
    assert worked_questions(tmp_path / "absent") == []


def test_heads_of_figures_stand_over_them():
    assert Answer(["a", "b", "c"], [(None, "x", True), (1, "y", False)], False, 0.0).numeric == [True, False, False]
