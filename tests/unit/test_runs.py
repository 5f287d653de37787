"""`r3l runs` says what each run is and how it stands: figures and notes are of its newest iteration."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l.audit.overview import Overview

SAMPLE = Path(__file__).parents[2] / "data" / "sample_run"


def listed() -> str:
    done = CliRunner().invoke(app_of(["runs"]), ["runs", "--store", str(SAMPLE)], env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_run_is_listed_with_what_it_is_and_its_newest_figures():
    (run, branch) = [line for line in listed().splitlines() if "│ sample" in line]
    for shown in ("r3l · embedded · alfworld", "38 %", "25 % [9–53] alfworld/heldout"):
        assert shown in run
    assert "alpha-5" in branch
    assert "alfworld/heldout" not in branch  # it was never evaluated


@pytest.mark.parametrize(("older", "newest"), [("no step taken: old", None), (None, "no step taken: new")])
def test_a_note_is_of_the_newest_iteration(older, newest, monkeypatch):
    original = Overview.rows

    def with_notes(overview):
        rows, left_out = original(overview)
        for row in rows:
            row["past"] = [row["past"][-1] | {"no_step": older}, row["past"][-1] | {"no_step": newest}]
        return rows, left_out

    monkeypatch.setattr(Overview, "rows", with_notes)
    assert ("no step taken: old" in listed(), "no step taken: new" in listed()) == (False, newest is not None)
