"""Attacks on those who look: SQL, pages, links, terminals, a store that may only be read."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi.testclient import TestClient

from flows.cli.screen.console import CleanConsole
from r3l.audit.lines import Line
from r3l.audit.terminal import show, status
from r3l.audit.web.app import make_app
from r3l.audit.web.sandbox import SqlBox
from r3l.store.query import ask, connect_for_users
from r3l.store.stage import Store
from tests.attacks.outcomes import Outcomes, refusal
from tests.support.audit_world import commit_world
from tests.support.read_only import READING, closed, read_only
from tests.support.store_iteration import commit_iteration
from tests.unit.test_audit_app import assert_harmless

FILES = (
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "FROM read_csv('{root}/secret.csv')",
    "FROM '{root}/secret.csv'",
    "FROM sniff_csv('{root}/secret.csv')",
    "FROM read_blob('{root}/secret.csv')",
    "FROM read_json('{root}/secret.csv')",
    "FROM read_parquet('{root}/../*/x.parquet')",
    "FROM parquet_metadata('{root}/secret.csv')",
    "FROM glob('/etc/*')",
    "FROM glob('{root}/../*')",
    "FROM read_text('{root}x/secret')",
    "FROM read_csv('/dev/stdin')",
    "FROM read_text('/proc/self/environ')",
    "FROM read_csv('https://evil.example/x.csv')",
    "FROM read_parquet('s3://evil/x.parquet')",
    "SELECT getenv('HOME')",
    "FROM python_table",
    "FROM query('DELETE FROM stages')",
    "FROM query_table('/etc/passwd')",
    "FROM enable_logging('QueryLog', storage = 'file', storage_config = {'path': '{root}'})",
    "WITH gone AS (DELETE FROM stages RETURNING *) FROM gone",
    "COPY turns TO '{root}/x.parquet'",
    "COPY (SELECT 1) TO '{root}/x.csv'",
    "EXPORT DATABASE '{root}/x'",
    "ATTACH '{root}/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA enable_profiling",
    "PRAGMA version",
    "CREATE TABLE t AS SELECT 1",
    "CREATE SECRET s (TYPE s3)",
    "DROP VIEW turns",
    "DELETE FROM stages",
    "CALL enable_logging()",
    "SELECT 1; COPY turns TO '{root}/x'",
    "EXPLAIN ANALYZE SELECT 1",
)
LONG = (
    "SELECT levenshtein(repeat('a', 2_000_000), repeat('b', 2_000_000))",  # hears no interrupt
    "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
)
CROSS = {"sec-fetch-site": "cross-site"}
FOREIGN: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("GET", "/sql?q=SELECT+42", CROSS | {"sec-fetch-mode": "navigate"}),
    ("GET", "/sql?q=SELECT+42", CROSS | {"sec-fetch-mode": "no-cors"}),
    ("GET", "/sql?q=SELECT+42", {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"}),
    ("GET", "/sql/answer.csv?q=SELECT+42", CROSS | {"sec-fetch-mode": "navigate"}),
    ("GET", "/run/demo", CROSS | {"sec-fetch-mode": "cors"}),
    ("GET", "/run/demo", {"origin": "https://evil.example"}),
    ("GET", "/run/demo", {"origin": "null"}),
    ("GET", "/", {"host": "evil.example"}),
    ("GET", "/", {"host": "127.0.0.1.evil.example"}),
    ("POST", "/sql?q=SELECT+42", {}),
    ("PUT", "/run/demo", {}),
    ("DELETE", "/run/demo", {}),
    ("OPTIONS", "/sql", {"origin": "https://evil.example", "access-control-request-method": "POST"}),
)
ODD = (
    "%00",
    "a" * 5_000,
    "..",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "<script>",
    "{{7*7}}",
    "%ff%fe",
    "-1",
    "9" * 400,
    "💥",
)
PLACES = (
    "/run/{}",
    "/run/{}/groups",
    "/run/demo?branch={}",
    "/run/demo/{}",
    "/compare?line={}",
    "/static/{}",
    "/run/demo/group?id={}&iteration=0",
    "/run/demo/groups?page={}",
    "/run/demo/tokens?source={}&iteration=0",
    "/sql?run={}&q=SELECT+1",
    "/{}",
)
PAGES = (
    "/",
    "/run/demo",
    "/run/demo/groups",
    "/run/demo/reflections",
    "/run/demo/account",
    "/run/demo/tasks",
    "/run/demo/group?id=iteration%3D0/task%3D0&iteration=0",
    "/run/demo/open?id=iteration%3D0/task%3D0/base%3D0",
    "/compare?line=demo",
    "/sql?q=" + quote("SELECT observation[:300], response[:300] FROM turns LIMIT 50"),
)
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def sql_at_files(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """SQL that reads files, writes, loads extensions or changes settings: refused by the command's connection and by
    the page's box, and nothing is written."""
    store = Store.open(str(folder / "runs"))
    commit_iteration(store)
    (folder / "runs" / "secret.csv").write_text("a\n1\n")
    before = sorted(folder.rglob("*"))
    box = SqlBox(store)
    try:
        for sql in FILES:
            text = sql.replace("{root}", store.root)
            with connect_for_users(store) as connection, outcomes.attempt(f"r3l sql: {sql}"):
                refusal(lambda: ask(connection, text, seconds=20))  # noqa: B023
            with outcomes.attempt(f"the page: {sql}"):
                refusal(lambda: box.ask(text))  # noqa: B023
        with outcomes.attempt("an honest question afterwards"):
            assert box.ask("SELECT count(*) FROM stages").rows == [(9,)], "the tables are others"
            assert sorted(folder.rglob("*")) == before, "something was written"
    finally:
        box.close()


def sql_without_end(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Questions that take for ever or all of the memory: ended, and the next one is answered."""
    store = Store.open(str(folder))
    commit_iteration(store)
    box = SqlBox(store, memory=400 << 20)
    try:
        for sql in LONG:
            with outcomes.attempt(sql):
                refusal(lambda: box.ask(sql, seconds=0.5))  # noqa: B023
                assert box.ask("SELECT 1").rows == [(1,)], "the next question is not answered"
        with outcomes.attempt("more memory than there is"):
            refusal(lambda: box.ask("SELECT length(repeat('a', 900_000_000 + i)) FROM range(1) t(i)", seconds=30))
            assert box.ask("SELECT 1").rows == [(1,)], "the next question is not answered"
    finally:
        box.close()


def looked_at(root: Path, hostile: bool = False) -> tuple[Any, TestClient]:
    """(the app over a small run, a client of it)."""
    store = Store.open(str(root))
    commit_world(store, "demo", iterations=1, tasks=2, hostile=hostile)
    app = make_app(store)
    return app, TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def cross_site(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Requests of pages of other sites, under other names, and other methods: refused, and no question is asked."""
    app, client = looked_at(folder)
    with client:
        for method, path, headers in FOREIGN:
            with outcomes.attempt(f"{method} {path} {headers}"):
                answer = client.request(method, path, headers=headers)
                assert answer.status_code in (400, 403, 405), f"answered {answer.status_code}"
                assert "access-control-allow-origin" not in answer.headers, "its pages may read the answer"
                assert ">42<" not in answer.text, "the question was asked"
    app.state.audit.close()


def odd_links(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Links that nobody makes by hand: a page that says what is wrong, never a fault of the server."""
    app, client = looked_at(folder)
    with client:
        for place in PLACES:
            for odd in ODD:
                path = place.format(odd)
                with outcomes.attempt(path[:80]):
                    answer = client.get(path)
                    assert answer.status_code in (200, 400, 404, 422), f"answered {answer.status_code}"
                    assert_harmless(answer.text)
    app.state.audit.close()


def hostile_text(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """HTML and terminal escapes in what a model or a world wrote: shown as text, on pages and in the terminal."""
    app, client = looked_at(folder, hostile=True)
    store: Store = app.state.audit.reader.store
    with client:
        for path in PAGES:
            with outcomes.attempt(f"page {path}"):
                answer = client.get(path)
                assert answer.status_code == 200, f"answered {answer.status_code}"
                assert_harmless(answer.text)
    app.state.audit.close()
    for name, view in (
        ("show a base", lambda: show(store, "iteration=0/task=0/base=0", Line("demo"))),
        ("show a retry", lambda: show(store, "iteration=0/task=0/retry=0", Line("demo"))),
        ("status", lambda: status(store, "demo")),
    ):
        with outcomes.attempt(f"terminal: {name}"):
            out = io.StringIO()
            CleanConsole(file=out, width=200).print(view())
            assert out.getvalue().strip(), "nothing is shown"
            assert not ACTS.search(out.getvalue()), "a control character gets through"


def only_read(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """A store that may not be written to, by a process that can't override it: every reader works."""
    store = Store.open(str(folder / "runs"))
    commit_iteration(store, "good")
    with closed(folder / "runs"):
        done = subprocess.run(
            [*read_only(), sys.executable, "-c", READING, store.root, "good"],
            capture_output=True,
            text=True,
            env=os.environ | {"R3L_CACHE": "/proc/nowhere", "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    said = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if " = " in line)
    with outcomes.attempt("the process"):
        assert done.returncode == 0, (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        assert said, "it said nothing"
    for what, came in said.items():
        with outcomes.attempt(what):
            assert came == "ok", came
