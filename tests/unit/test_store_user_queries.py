"""SQL that others wrote reads the tables of the store, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from flows.cli.screen.answers import rows_view
from r3l.errors import StoreError
from r3l.store.query import ask, connect_for_users
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("store")
    commit_iteration(Store.open(str(root)))
    (root / "secret.csv").write_text("a\n1\n")
    return root


@pytest.fixture(scope="module")
def connection(root) -> Iterator[duckdb.DuckDBPyConnection]:
    """What one question did to it, the next ones would meet."""
    with connect_for_users(Store.open(str(root))) as connection:
        yield connection


@pytest.mark.parametrize("sql", [
    "SELECT count(*) AS n FROM turns",
    "WITH x AS (SELECT 21 AS n) FROM x",
    "FROM (SELECT count(*) AS n FROM lines.turns)",
])  # fmt: skip
def test_questions_are_answered(connection, sql):
    assert ask(connection, sql).to_pylist() == [{"n": 21}]


def test_the_tables_can_be_looked_over(connection):
    assert "pivots" in ask(connection, "SHOW TABLES")["name"].to_pylist()
    assert ask(connection, "DESCRIBE pivots").num_rows > 20
    assert ask(connection, "SUMMARIZE base").num_rows > 10


@pytest.mark.parametrize(("expression", "number"), [
    ("sum(1)", 21), ("max(0.5)", 0.5), ("sum(2.5)", 52.5), ("sum(9223372036854775807)", 21 * 2.0**63),
    ("sum(turn) FILTER (turn < 0)", None),
])  # fmt: skip
def test_sums_and_numbers_with_a_point_are_numbers_of_json(connection, expression, number):
    (row,) = ask(connection, f"SELECT {expression} AS n FROM turns").to_pylist()
    assert json.loads(json.dumps(row["n"])) == number
    assert type(row["n"]) is type(number)


def test_columns_of_one_name_are_told_apart_and_their_order_stays(connection):
    joined = "SELECT a.run, b.run, a.trajectory_id FROM base a JOIN base b USING (trajectory_id) ORDER BY 3 DESC"
    answer = ask(connection, joined)
    assert answer.column_names == ["run", "run_1", "trajectory_id"]
    assert answer["trajectory_id"].to_pylist() == sorted(answer["trajectory_id"].to_pylist(), reverse=True)
    rows_view(answer, width=40)  # the terminal's view takes each of them


@pytest.mark.parametrize(("sql", "named"), [
    ("COPY turns TO 'x.parquet'", "got COPY"), ("SET threads = 1", "got SET"), ("ATTACH 'x.db'", "got ATTACH"),
    ("INSTALL httpfs", "got LOAD"), ("CREATE TABLE x AS SELECT 1", "got CREATE"), ("DROP VIEW turns", "got DROP"),
    ("SELECT 1; SELECT 2", "got SELECT, SELECT"), ("", "got nothing"), ("PRAGMA database_list", "got PRAGMA"),
    ("DELETE FROM stages", "got DELETE"), ("SELEC 1", "syntax error"), ("EXPORT DATABASE 'x'", "got EXPORT"),
    ("LOAD httpfs", "got LOAD"), ("RESET lock_configuration", "got "), ("CREATE SECRET s (TYPE s3)", "got "),
    ("CALL enable_logging()", "got CALL"), ("EXPLAIN ANALYZE SELECT 1", "got EXPLAIN"),
    ("SELECT 1; COPY turns TO 'x'", "got SELECT, COPY"),
])  # fmt: skip
def test_what_is_no_single_select_is_refused(connection, sql, named):
    with pytest.raises(StoreError, match=named):
        ask(connection, sql)


@pytest.mark.parametrize("sql", [
    "FROM read_csv('{root}/secret.csv')", "FROM '{root}/secret.csv'", "FROM read_text('/etc/hostname')",
    "FROM glob('{root}/*')", "FROM read_parquet('{root}/../*/x.parquet')", "SELECT getenv('HOME')",
    "FROM sniff_csv('{root}/secret.csv')", "FROM sql", "FROM parquet_metadata('{root}/secret.csv')",
    "FROM read_blob('{root}/secret.csv')", "FROM read_csv('https://evil.example/x.csv')",
    "FROM read_parquet('s3://evil/x.parquet')", "FROM query_table('/etc/passwd')",
    "FROM query('DELETE FROM stages')", "FROM read_text('/proc/self/environ')", "FROM glob('{root}/../*')",
    "FROM '/etc/passwd'", "FROM enable_logging('QueryLog', storage = 'file', storage_config = {'path': '{root}'})",
    "WITH gone AS (DELETE FROM stages RETURNING *) FROM gone",
])  # fmt: skip
def test_a_query_reads_no_file_outside_the_store(connection, sql, root):
    with pytest.raises(StoreError):
        ask(connection, sql.replace("{root}", str(root)))
    assert ask(connection, "SELECT count(*) AS n FROM stages").to_pylist() == [{"n": 9}]


def test_a_view_can_not_be_widened_by_its_settings(connection):
    with pytest.raises(duckdb.Error, match="locked"):
        connection.execute("SET enable_external_access = true")


def test_a_question_that_takes_too_long_is_stopped(connection):
    with pytest.raises(StoreError, match=r"stopped after 0\.2 s"):
        ask(connection, "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", seconds=0.2)
    assert ask(connection, "SELECT 1 AS n").num_rows == 1
