"""A run of an experiment that is played again says how far it agrees with the one whose stages are kept."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from r3l.lab.study import again
from r3l.lab.study.again import agreement, stages_of_run
from r3l.store.stage import Store

SHIPPED = Path(__file__).parents[2] / "data" / "sample_run"


@pytest.fixture
def kept() -> dict[str, Any]:
    return stages_of_run(Store.open(str(SHIPPED), reading=True), "sample") | {"machine": {"processor": "one"}}


def test_a_run_says_how_far_it_agrees_with_the_kept_one(kept, tmp_path, monkeypatch):
    store, file = Store.open(str(SHIPPED), reading=True), tmp_path / "stages.json"
    assert agreement(store, "sample", file) == ""
    file.write_text(json.dumps({"sample": kept}))
    assert agreement(store, "sample", file) == f"all {len(kept['stages'])} stages equal to the kept ones, bit for bit"
    kept["stages"]["iteration 1, credit"] = "0" * 16
    file.write_text(json.dumps({"sample": kept, "other": kept}))
    monkeypatch.setattr(again, "other_machine", lambda then, now: {"processor": (then["processor"], "another")})
    alike = [*kept["stages"]].index("iteration 1, credit")
    assert agreement(store, "sample", file) == (
        f"differs from the kept run in iteration 1, credit, the first {alike} of {len(kept['stages'])} stages are "
        "equal; processor one, here another"
    )
    shutil.copytree(SHIPPED / "sample" / "iteration=00000", tmp_path / "store" / "sample" / "iteration=00000")
    shorter = agreement(Store.open(str(tmp_path / "store")), "sample", file)
    assert shorter.startswith("differs from the kept run in iteration 1, tasks")
