"""The evidence again, on the real ALFWorld engine: only margins that held on every seed of the kept results are
asserted.

About thirteen minutes on a free core: `pytest -m slow --timeout 3600 tests/flows/test_evidence.py`.
"""

import json
from pathlib import Path

import pytest

from r3l.lab.study.whole import Only, run_experiment

DATA = Path(__file__).parents[2] / "data"
GAIN = 0.5  # from the start to the last iteration, each arm on each seed of the kept results


def gains(results: dict) -> dict[str, float]:
    """By run: success at the end less success at the start."""
    return {run: curve[max(curve, key=int)] - curve["-1"] for run, curve in results["curves"].items()}


def test_the_margins_held_on_every_seed_that_is_kept():
    kept = json.loads((DATA / "results" / "main_alfworld-laptop.json").read_text())
    begins = ("main_alfworld.r3l-w-o-reflect.s", "main_alfworld.grpo.s")
    learned = [gain for run, gain in gains(kept).items() if run.startswith(begins)]
    assert len(learned) == 6
    assert min(learned) > GAIN


@pytest.mark.slow
def test_grpo_and_r3l_without_reflection_still_learn(tmp_path: Path):
    run_experiment(
        str(DATA / "experiments" / "main_alfworld.toml"),
        "laptop",
        str(tmp_path / "store"),
        str(tmp_path / "results"),
        0,
        0,
        Only("R3L w/o reflect,GRPO", "0", "0.0003"),
        lambda ended: None,
    )
    found = json.loads((tmp_path / "results" / "main_alfworld-laptop.json").read_text())
    assert sorted(gains(found)) == ["main_alfworld.grpo.s0", "main_alfworld.r3l-w-o-reflect.s0"]
    assert min(gains(found).values()) > GAIN
