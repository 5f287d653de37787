import io
import os
import socket

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l.audit.lines import Line
from r3l.audit.terminal import UP, show, status
from r3l.errors import StoreError
from r3l.store.stage import Store
from tests.support.audit_world import commit_world
from tests.support.store_iteration import commit_iteration


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(made, "demo")
    commit_world(made, "hostile", iterations=1, tasks=1, hostile=True)
    return made


def printed(view, colour=False):
    out = io.StringIO()
    Console(file=out, width=160, force_terminal=colour, color_system="truecolor" if colour else None).print(view)
    return out.getvalue()


def test_a_retry_is_shown_from_its_bases_first_turn_with_the_pivot_and_the_reflection(store):
    text = printed(show(store, "iteration=0/task=0/retry=0", Line("demo")))
    lines = text.splitlines()
    place = {
        what: next(k for k, line in enumerate(lines) if what in line)
        for what in ("go 0 0", "─ pivot 1 ─", "go 50 1", "go 50 2", "reward 1.00")
    }
    assert place["reward 1.00"] < place["go 0 0"] < place["─ pivot 1 ─"] < place["go 50 1"] < place["go 50 2"]
    assert "masked" in lines[place["go 0 0"]]
    assert "w·Â +1.0000, first divergence" in lines[place["go 50 1"]]
    assert "Clean the thing before you place it." in text
    assert "gain of the retry +1.00" in text


def test_shading_is_by_weight_and_advantage(store):
    shaded = printed(show(store, "iteration=0/task=0/distilled=0", Line("demo")), colour=True)
    red, green, blue = (int(UP[5][k : k + 2], 16) for k in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}mgo 50 1" in shaded
    assert "+3.00 (top" in printed(show(store, "iteration=0/task=0/distilled=0", Line("demo")))


def test_hostile_text_reaches_no_terminal(store):
    text = printed(show(store, "iteration=0/task=0/base=0", Line("hostile")))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "⟨U+001B⟩[2J" in text
    assert "⟨U+202E⟩" in text
    assert len(text) < 60_000


def test_an_id_without_a_run_is_looked_for(store):
    with pytest.raises(StoreError, match="is in demo, hostile; choose by --run"):
        show(store, "iteration=0/task=0/base=0")
    assert "task t1" in printed(show(store, "iteration=0/task=1/base=0")).replace("\n", " ")
    with pytest.raises(StoreError, match="is in none of demo, hostile"):
        show(store, "iteration=5/task=0/base=0")


def test_status_counts_the_stages_the_figures_and_the_attempts(store):
    lines = [line.split() for line in printed(status(store, "demo")).splitlines()]
    text = printed(status(store, "demo"))
    assert "demo  iteration 0, done" in text
    assert any(line[:3] == ["base", "1", "16"] for line in lines)
    assert "0.250" in text
    assert "50.0 %" in text
    assert ["reflections", "4", "1", "1", "2", "0"] in [line[-6:] for line in lines]
    with pytest.raises(StoreError, match="nope: not in"):
        status(store, "nope")


def test_status_says_who_is_writing(store):
    with store.writer_lock("demo", "", 1):
        me = f"host {socket.gethostname()}, process {os.getpid()}"
        assert f"iteration 1 is being written by {me} since " in printed(status(store, "demo"))
    assert "nobody is writing it" in printed(status(store, "demo"))


def test_report_status_show_and_track_print_a_run(store, tmp_path):
    app = app_of(["report", "status", "show", "track"])
    run = CliRunner()
    out = tmp_path / "report.html"
    assert run.invoke(app, ["report", "demo", "--out", str(out), "--store", store.root]).exit_code == 0
    assert out.stat().st_size > 10_000
    assert "iteration 0, done" in run.invoke(app, ["status", "demo", "--store", store.root]).output
    assert (
        "pivot 1"
        in run.invoke(app, ["show", "iteration=0/task=0/retry=0", "--run", "demo", "--store", store.root]).output
    )
    assert run.invoke(app, ["track", "demo", "--to", "paper", "--store", store.root]).exit_code == 2
