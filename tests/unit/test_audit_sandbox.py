import time

import pytest

from r3l.audit.reader import Reader
from r3l.audit.sandbox import Answer, ask, worked_questions
from r3l.errors import StoreError
from r3l.store.stage import Store
from tests.store_iteration import commit_iteration


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    found = Reader(store)
    yield found
    found.close()


def test_a_select_is_answered(reader):
    answer = ask(reader, "SELECT base_id, gain FROM pivots ORDER BY gain DESC -- the better first")
    assert (answer.columns, answer.more) == (["base_id", "gain"], False)
    assert answer.rows == [("iteration=0/task=0/base=0", 1.0), ("iteration=0/task=1/base=1", 0.0)]


def test_rows_past_the_limit_are_left_out_and_said(reader):
    answer = ask(reader, "FROM range(100) ORDER BY 1 DESC", rows=3)
    assert (answer.rows, answer.more) == ([(99,), (98,), (97,)], True)
    assert ask(reader, "FROM range(3)", rows=3).more is False


@pytest.mark.parametrize("query", [
    "", "SELECT 1; SELECT 2", "DELETE FROM stages", "COPY (SELECT 1) TO 'x.csv'", "ATTACH 'x.db'", "INSTALL httpfs", "SET threads = 8",
    "PRAGMA version", "CREATE TABLE t AS SELECT 1", "CALL enable_logging()", "EXPLAIN ANALYZE SELECT 1", "SELEC 1",
])  # fmt: skip
def test_anything_but_one_select_is_refused(reader, query):
    with pytest.raises(StoreError):
        ask(reader, query)


@pytest.mark.parametrize("query", [
    "WITH gone AS (DELETE FROM stages RETURNING *) FROM gone", "FROM query('DELETE FROM stages')",
    "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM '/etc/passwd'", "FROM glob('/etc/*')", "FROM glob('{store}/../*')",
    "FROM read_text('{store}x/secret')", "FROM enable_logging('QueryLog', storage = 'file', storage_config = {{'path': '{store}'}})",
    "FROM read_csv('/dev/stdin')", "SELECT getenv('HOME')", "FROM python_table",
])  # fmt: skip
def test_a_select_neither_writes_nor_reads_elsewhere(reader, query):
    python_table = [1]
    assert python_table
    with pytest.raises(StoreError):
        ask(reader, query.replace("{store}", reader.store.root).replace("{{", "{").replace("}}", "}"))
    assert ask(reader, "SELECT count(*) FROM stages").rows == [(9,)]


def test_a_query_is_stopped_in_time(reader):
    begun = time.monotonic()
    with pytest.raises(StoreError, match=r"stopped after 0\.3 s"):
        ask(reader, "SELECT count(*) FROM range(1_000_000_000_000)", seconds=0.3)
    assert time.monotonic() - begun < 20
    for _ in range(100):
        try:
            assert ask(reader, "SELECT 1").rows == [(1,)]
            break
        except StoreError:
            time.sleep(0.1)
    else:
        pytest.fail("the stopped query still holds its place")


def test_a_message_cut_within_a_character_is_an_error_like_any_other(reader):
    with pytest.raises(StoreError, match="can't be run"):
        ask(reader, "SELECT ('\ufffd' || 'n' || repeat('\ufffd', 200)) ->> '$.a'")


def test_worked_questions_are_read_from_a_folder(tmp_path):
    (tmp_path / "02_b.sql").write_text("-- What?\n-- more\nSELECT 2\n")
    (tmp_path / "01_a.sql").write_text("SELECT 1")
    found = worked_questions(tmp_path)
    assert [(one.name, one.asks, one.sql) for one in found] == [("01_a", "01_a", "SELECT 1"), ("02_b", "What?", "SELECT 2")]
    assert worked_questions(tmp_path / "absent") == []


def test_heads_of_figures_stand_over_them():
    assert Answer(["a", "b", "c"], [(None, "x", True), (1, "y", False)], False, 0.0).numeric == [True, False, False]
