"""The index of a run is never the truth: what is stale, torn or foreign is made anew, and a damaged run breaks no
other's views."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from flows.cli import app as commands
from r3l import open_store
from r3l.audit.web.app import make_app
from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.figures import LINES, remember_answers
from r3l.store.index import blocks as index
from r3l.store.index.contents import NARROW, STAGES_SCHEMA
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

ROOT = Path(__file__).parents[2]
COUNT = "SELECT run, count(*) FROM turns GROUP BY ALL ORDER BY ALL"


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "UNSETTLED_NS", 0)  # else what was just written is looked at again
    store = Store.open(str(tmp_path / "runs"))
    for run in ("good", "other"):
        commit_iteration(store, run)
    return store


def counted(store: Store, **asked) -> tuple[list[tuple[str, int]], dict[str, str]]:
    """The turns of each run, and what is left out; for `stages` all of the index is read, but few views are made."""
    with connect(store, question=f"{COUNT}; FROM stages", **asked) as connection:
        return connection.execute(COUNT).fetchall(), dict(connection.execute("FROM left_out").fetchall())


def part_of(store: Store, run: str, table: str = "turns") -> Path:
    return next(Path(store.root, run).rglob(f"part-{table}-*.parquet"))


def block_path(store: Store, run: str) -> Path:
    """The one file of the index of a run with a few iterations."""
    return index.index_path(store, run).with_suffix("") / "0.json"


def flip(path: Path, keep_times: bool = False) -> None:
    """Turn one bit of a column's data, which stand before the footer, in place."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(before.st_size // 8)
        byte = file.read(1)
        file.seek(before.st_size // 8)
        file.write(bytes([byte[0] ^ 1]))
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_run_is_read_once_and_then_only_what_is_new(store, monkeypatch):
    read: list[str] = []
    whole = index.manifests.read_verified
    monkeypatch.setattr(
        index.manifests, "read_verified", lambda files, path, entry: read.append(path) or whole(files, path, entry)
    )
    assert counted(store) == ([("good", 21), ("other", 21)], {})
    first, read[:] = list(read), []
    assert len(first) == 2 * 13  # tables of an iteration that have rows
    assert counted(store)[0] == [("good", 21), ("other", 21)]
    assert read == []
    commit_iteration(store, "good", iteration=1)
    assert counted(store)[0] == [("good", 42), ("other", 21)]
    assert len(read) == 13
    assert all("good/iteration=00001/" in path for path in read)


@pytest.mark.parametrize("damage", ["", "torn", "changed", "foreign"])
def test_an_index_that_is_no_index_is_made_anew(store, damage):
    expected = counted(store)
    path = block_path(store, "good")
    whole = path.read_text()
    path.write_text(
        {
            "": "",
            "torn": whole[: len(whole) // 2],
            "changed": whole.replace('"good/', '"evil/'),
            "foreign": block_path(store, "other").read_text(),
        }[damage]
    )
    assert counted(store) == expected
    assert path.read_text() == whole


@pytest.mark.parametrize("cached", [False, True])
def test_a_question_that_does_not_name_stages_reads_the_columns_that_its_views_need(store, cached):
    if cached:
        counted(store)
    for view in ("iterations", "account"):
        with connect(store, ["good"], question=f"FROM {view}") as narrow, connect(store, ["good"]) as wide:
            rows, expected = (one.sql(f"FROM {view} ORDER BY ALL").fetchall() for one in (narrow, wide))
            assert rows
            assert repr(rows) == repr(expected)
            assert narrow.sql("FROM stages").columns == [*NARROW]
    with connect(store, ["good"], question="SELECT count(*) FROM stages") as asked:
        assert asked.sql("FROM stages").columns == STAGES_SCHEMA.names


@pytest.mark.parametrize("missing", ["run", "store"])
def test_a_run_that_was_asked_for_before_it_began_is_seen_once_it_has(store, missing):
    there = store if missing == "run" else Store.open(f"{store.root}-later")
    assert index.index_run(there, "new").contents.stages["run"] == []
    commit_iteration(there, "new")
    assert counted(there, runs=["new"]) == ([("new", 21)], {})


def test_what_changed_behind_the_index_is_seen(store):
    counted(store)
    flip(part_of(store, "good"))
    found, left_out = counted(store)
    assert dict(found)["other"] == 21
    assert dict(found).get("good", 0) < 21
    assert "its content changed after it was written" in left_out["good"]


def test_verify_sees_what_keeps_its_size_and_times(store):
    counted(store)
    flip(part_of(store, "good"), keep_times=True)
    assert counted(store)[1] == {}
    assert list(counted(store, verify=True)[1]) == ["good"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


DAMAGE = {
    "a part that is cut": lambda store: cut(part_of(store, "good")),
    "a part that is gone": lambda store: part_of(store, "good").unlink(),
    "a flipped bit": lambda store: flip(part_of(store, "good", "training_rows")),
    "a torn manifest": lambda store: cut(next(Path(store.root, "good").rglob("stage.json"))),
    "a manifest that is a list": lambda store: next(Path(store.root, "good").rglob("stage.json")).write_text("[]"),
}


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_stage_is_left_out_by_name_and_breaks_no_other(store, name, asked_before):
    if asked_before:
        counted(store)
        remember_answers(store, "test", {"lines": LINES})
    DAMAGE[name](store)
    found, left_out = counted(store)
    assert dict(found)["other"] == 21
    assert list(left_out) == ["good"]
    assert "without 1 damaged stages (good/iteration=00000/" in left_out["good"]
    index_rows = remember_answers(store, "test", {"lines": LINES})
    assert (sorted(index_rows.runs), list(index_rows.left_out)) == (["good", "other"], ["good"])
    with connect(store, ["good"]) as connection:  # the other stages of the run are read
        assert connection.execute("SELECT count(DISTINCT stage) FROM stages").fetchall() == [(8,)]


def test_a_run_of_which_nothing_is_sound_is_refused(store):
    for path in Path(store.root, "good").rglob("stage.json"):
        cut(path)
    assert list(counted(store)[1]) == ["good"]
    with pytest.raises(StoreError, match="run good: "):
        connect(store, ["good"])


@pytest.fixture
def r3l(monkeypatch, capsys):
    """A command in this process: its exit code, what it printed and what it said beside that."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            run_main(monkeypatch, list(words))
        return ended.value.code or 0, *capsys.readouterr()

    return run


def run_main(monkeypatch, words: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["r3l", *words])
    monkeypatch.setattr(commands, "Leaving", SimpleNamespace)  # the true one ends this process with exit status 0
    commands.main()


def test_the_commands_name_what_they_leave_out_and_refuse_what_is_not_there(store, r3l):
    part_of(store, "good").unlink()
    code, answer, said = r3l("sql", COUNT, "--store", store.root)
    assert code == 1
    assert "warning: run good is damaged: without 1 damaged stages (good/iteration=00000/" in said
    assert "other" in answer
    code, answer, _ = r3l("sql", COUNT, "--store", store.root, "--json", "--allow-damaged")
    assert code == 0
    assert list(json.loads(answer.splitlines()[-1])["left_out"]) == ["good"]
    for words in (["sql", COUNT, "--run", "nosuch"], ["check", "nosuch"]):
        code, answer, said = r3l(*words, "--store", store.root)
        assert (code, answer) == (2, "")
        assert "error: run 'nosuch': not in" in said
        assert "it has good, other" in said.replace("\n", " ")


def test_a_question_over_several_runs_says_so(store, r3l):
    _, answer, said = r3l("sql", "SELECT count(*) AS turns FROM turns", "--store", store.root)
    assert "42" in answer
    assert "of 2 runs together" in said
    assert "together" not in r3l("sql", "SELECT count(*) AS n FROM turns", "--run", "good", "--store", store.root)[2]


@pytest.mark.parametrize(
    "words", [["runs", "--store", "nowhere"], ["sql", "SELECT 1", "--store", "nowhere"], ["audit", "nowhere"]]
)
def test_a_store_that_is_not_there_is_refused(words, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch, words)
    assert ended.value.code == 2
    assert "error: store nowhere: not there" in capsys.readouterr().err


def test_a_fault_is_one_line_and_its_traceback_is_for_those_who_ask(monkeypatch, capsys):
    def broken() -> None:
        raise KeyError("of no table\nand a second line")

    monkeypatch.setattr(commands, "command", broken)
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch, ["runs"])
    assert ended.value.code == 3
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(KeyError):
        run_main(monkeypatch, ["runs", "--debug"])


# As root once, for what is imported late: the interpreter may lie where another user can't read it.
AS_ANOTHER = """
import json, os, sys
from flows.cli.app import PLACES, app_of
app = app_of(PLACES)
for user in (0, 65534):
    os.setuid(user)
    for words in json.loads(sys.argv[1]):
        try:
            code = app(words, standalone_mode=False)
        except SystemExit as ended:
            code = ended.code
        assert not code, (user, words, code)
print("all of them")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_store_that_may_only_be_read_is_read(store):
    """By another user, who can write neither to the store nor to a cache. Not below the folder of the tests, which
    pytest closes to other users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = shutil.copytree(store.root, Path(folder, "runs"))
        before = sorted(root.rglob("*"))
        asked = [
            ["sql", COUNT],
            ["runs"],
            ["check", "good"],
            ["status", "good"],
            ["why", "iteration=0/task=0/base=0", "--run", "good"],
        ]
        words = json.dumps([[*one, "--store", str(root)] for one in asked])
        environment = os.environ | {"R3L_CACHE": "/proc/nowhere"}
        command = [sys.executable, "-c", AS_ANOTHER, words]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        assert result.stdout.endswith("all of them\n"), result.stderr
        assert sorted(root.rglob("*")) == before


def test_an_index_of_unsettled_files_is_not_kept(store, monkeypatch):
    monkeypatch.setattr(index, "UNSETTLED_NS", 10**12)
    counted(store)
    flip(part_of(store, "good"), keep_times=True)
    assert list(counted(store)[1]) == ["good"]


def test_a_file_of_another_inode_is_read_though_size_and_times_are_the_same(store):
    counted(store)
    part = part_of(store, "good")
    times = part.stat(), part.parent.stat()
    other = Path(shutil.copy2(part, store.root))
    flip(other, keep_times=True)
    other.replace(part)
    for path, was in zip((part, part.parent), times, strict=True):
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert list(counted(store)[1]) == ["good"]


ATTEMPT = "iteration=0/task=0/base=0"
ANSWERS = {
    "status": ["status", "good"],
    "report": ["report", "good", "--out", "good.html"],
    "show": ["show", ATTEMPT, "--run", "good"],
    "show anywhere": ["show", ATTEMPT],
    "why": ["why", ATTEMPT, "--run", "good"],
    "runs": ["runs"],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_command_that_answers_says_what_it_leaves_out(store, name, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    cut(next(Path(store.root, "good").rglob("reflections/**/stage.json")))
    with pytest.raises(SystemExit):
        run_main(monkeypatch, [*ANSWERS[name], "--store", store.root])
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: run good is damaged: without 1 damaged stages (good/iteration=00000/reflections" in said
    if name == "report":
        assert "<b>good</b> is damaged, and what is shown leaves something out" in Path("good.html").read_text()


def test_an_answer_in_python_says_what_it_leaves_out(store):
    cut(next(Path(store.root, "good").rglob("reflections/**/stage.json")))
    with pytest.warns(UserWarning, match="run good is damaged: without 1 damaged stages"):
        answer = open_store(store.root).sql(COUNT)
    assert list(answer.left_out) == ["good"]


def test_every_page_of_the_audit_says_what_it_leaves_out(store):
    cut(next(Path(store.root, "good").rglob("reflections/**/stage.json")))
    pages = ("/", "/run/good", "/run/good/groups", "/compare?line=good&line=other", f"/sql?q={quote(COUNT)}")
    with TestClient(make_app(store), base_url="http://localhost") as client:
        for page in pages:
            assert "<b>good</b> is damaged, and what is shown leaves" in client.get(page).text, page
        assert "is damaged" not in client.get("/run/other").text
