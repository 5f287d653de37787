"""`--machine one_gpu` end to end, on a stand-in of vLLM that samples by the embedded engine: started by the run, asleep
while the update runs, woken with the weights that it wrote, gone at the end."""

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.cli.settings import settings
from r3l.engines.vllm.own_servers import OwnServers
from r3l.evaluation.benchmarks import pose
from r3l.pipeline import evaluation, preflight
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.stages import updates as stage
from r3l.pipeline.tools import Tools
from r3l.store.catalog import connect
from tests.support.stand_in import environment

POLICY = "data/policies/household-easy-0"
# fmt: off
SMALL = (
    "policy.dtype=float32", "policy.context_tokens=4096", "training.dtype=float32", "training.device=cpu",
    "training.processes=0", "training.learning_rate=1e-2", "environment.level=easy", "environment.max_turns=16",
    "environment.reply_tokens=64", "environment.workers=1", "rollout.tasks=3", "rollout.group_size=4",
    "rollout.reflection_tokens=64", "evaluation.tasks=2",
)
# fmt: on


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_it_samples_sleeps_for_the_update_and_samples_from_the_new_policy(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_VLLM_PYTHON", str(environment(tmp_path / "vllm")))
    monkeypatch.setenv("VLLM_STAND_IN", "embedded")
    given = [*SMALL, "engine.sleep=2", f"store.root={tmp_path / 'runs'}"]
    config = settings("one", "paper", "r3l", POLICY, "household", "", given, machine="one_gpu")
    asleep: list[Any] = []

    def step(*arguments: Any, **options: Any) -> dict[str, Any]:
        server = engine.processes[0]
        key = {"Authorization": f"Bearer {server.key}"}
        asleep.append(httpx.get(f"{server.url}/is_sleeping", headers=key).json()["is_sleeping"])
        return plain(*arguments, **options)

    plain = stage.take_step
    monkeypatch.setattr(stage, "take_step", step)
    store = preflight.check(config)
    with closing(Tools()) as tools:
        engine = tools.engine(config)
        assert isinstance(engine, OwnServers)
        started = set()
        for iteration in range(2):
            with open_iteration(config, store, iteration, tools=tools) as bench:
                run_stages(bench)
            assert engine.processes[0].process is not None
            started.add(engine.processes[0].process.pid)
        evaluation.evaluate(pose(config), store, 1, tools=tools)
    assert asleep == [True, True]
    assert len(started) == 1, "one server serves both iterations"
    assert not engine.processes[0].alive
    log = (tmp_path / "runs" / "one" / "logs" / "vllm-gpu0.log").read_text()
    assert f"GPU 0: {Path(POLICY)}" in log
    with connect(store, ["one"]) as connection:
        updates = connection.execute("SELECT canary_error, policy, parent_policy FROM updates ORDER BY iteration")
        first, second = updates.fetchall()
        said = connection.execute("SELECT event, reason FROM events WHERE event LIKE '%restart%'").fetchall()
    assert first[0] != first[0], "no update wrote the starting policy"
    assert second[0] < 1e-4, "the server woke with the weights of the first update"
    assert first[1] == second[2] != first[2], "the first update took a step"
    assert said == []
