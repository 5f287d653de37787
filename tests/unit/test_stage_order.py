"""The graph of stages stands once: what is declared is what stored stages were made from, and what is submitted."""

import json
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from r3l.pipeline.stages import shards
from r3l.pipeline.stages.calls import CALLS
from r3l.pipeline.workbench import Workbench
from r3l.records import SamplingPlan
from r3l.stages import STAGES

SAMPLE = Path(__file__).parents[2] / "data" / "sample_run"


def test_parents_come_before_their_stage_or_belong_to_the_rounds_before():
    order = list(STAGES)
    for stage, about in STAGES.items():
        for parent in about.parents:
            earlier_round = about.rounds and STAGES[parent].rounds
            assert order.index(parent) < order.index(stage) or earlier_round, (stage, parent)
    assert list(CALLS) == [stage for stage, about in STAGES.items() if not about.apart]


def test_the_sample_run_was_made_from_the_parents_that_are_declared():
    manifests = [json.loads(path.read_text()) for path in SAMPLE.glob("**/stage.json")]
    assert len(manifests) > 10
    for manifest in manifests:
        stage, made_from = manifest["stage"], [parent["stage"] for parent in manifest["parents"]]
        own = [name for name, _ in groupby(made_from)]
        if manifest["iteration"] >= 0 and stage not in ("tasks", "replay"):
            assert own == [name for name in STAGES[stage].parents if name in own], manifest["stage"]


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a shard submits in two rounds of retries, as STAGE(PARENTS); the oracle is not asked."""
    plan = SimpleNamespace(retries_per_base=2, reflection="policy", continuations=())
    monkeypatch.setattr(shards, "plan_of", lambda bench: cast(SamplingPlan, plan))
    lines: list[str] = []

    def submit(call: Any, bench: Any, batch: str, parents: list[str], shard: int, *of_round: int) -> str:
        (stage,) = [stage for stage, one in CALLS.items() if one is call]
        name = stage + "".join(map(str, of_round))
        lines.append(f"{name}({' '.join(parents)})")
        return name

    bench = SimpleNamespace(runner=SimpleNamespace(submit=submit), asks_oracle=False, wants=lambda stage: True)
    shards.submit(cast(Workbench, bench), cast(Any, "tasks"), 3, {stage: [] for stage in CALLS})
    return lines


def test_a_round_reads_its_own_reflection_and_the_stitches_of_all_rounds_before(submitted):
    assert submitted == [
        "base(tasks)", "reflections0(base)", "retries0(base reflections0)", "distilled0(base retries0)",
        "reflections1(base distilled0)", "retries1(base distilled0 reflections1)",
        "distilled1(base distilled0 retries1)", "credit(base retries0 retries1 distilled0 distilled1)",
        "training_rows(base reflections0 reflections1 retries0 retries1 distilled0 distilled1 credit)",
    ]  # fmt: skip
