"""The check for shown gold answers on committed stages."""

import json
from dataclasses import replace

from typer import Typer
from typer.testing import CliRunner

from r3l.evaluation.leaks import leaks_in_store
from r3l.records import Task, observation_hash
from r3l.store.catalog import connect
from r3l.store.layout import StageKey
from r3l.store.stage import Store, fingerprint
from tests.support.store_iteration import reflection, trajectory, turn

QUESTION, GOLD = "You see 0.", "8128"


def commit(store: Store, run: str, feedback: str, advice: str) -> None:
    """One base of two turns, with a reflection on it."""
    task = Task(0, 0, "t0", "math", "train", "sums", json.dumps({"question": QUESTION, "gold": GOLD}), 0)
    base = replace(
        trajectory("iteration=0/task=0/base=0", "base", 0, 0, 0, 0.0, 6),
        turns=2,
        final_observation="Your answer is not correct.",
    )
    turns = [
        turn(base.trajectory_id, 0, 0, 0),
        replace(turn(base.trajectory_id, 0, 1, 0), observation=feedback, observation_hash=observation_hash(feedback)),
    ]
    about = reflection(base.trajectory_id, 0, 0, "parsed", "failure", 1, "retry")
    about = replace(about, report=json.dumps({"improvement_suggestion": advice}))
    stages = {
        "tasks": {"tasks": [task]},
        "base": {"trajectories": [base], "turns": turns},
        "reflections": {"reflections": [about]},
    }
    for stage, tables in stages.items():
        identity = fingerprint(stage, {"run": run}, [], "p0", {})
        store.commit(
            StageKey(run, "", 0, stage), tables, fingerprint=identity, settings={}, policy="p0", seed=0, metrics={}
        )


def test_leaks_are_found_in_a_store_and_a_clean_run_has_none(tmp_path):
    store = Store.open(str(tmp_path))
    commit(store, "clean", "Your answer is not correct.", "Count again.")
    commit(store, "leaky", f"Not correct, it is {GOLD}.", f"Answer {GOLD}.")
    found = leaks_in_store(connect(store))
    assert [(leak.subject_id, leak.where) for leak in found] == [
        ("iteration=0/task=0/base=0/turn=0", "feedback"),
        ("iteration=0/task=0/base=0/reflection=0", "guidance"),
    ]
    assert leaks_in_store(connect(store, ["clean"])) == []


def test_check_reports_an_answer_that_was_shown(tmp_path):
    """`r3l check` of a run whose files and invariants are sound, and which showed an answer all the same."""
    from flows.cli.commands.tables import check

    store = Store.open(str(tmp_path))
    commit(store, "clean", "Your answer is not correct.", "Count again.")
    commit(store, "leaky", "Your answer is not correct.", f"Answer {GOLD}.")
    app = Typer()
    app.command()(check)
    result = CliRunner().invoke(app, ["leaky", "--store", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith(
        "leaks: leaky iteration=0/task=0/base=0/reflection=0: the guidance holds the gold answer '8128': "
    )
    sound = CliRunner().invoke(app, ["clean", "--store", str(tmp_path)])
    assert (sound.exit_code, sound.stdout) == (0, "clean: ok\n")
