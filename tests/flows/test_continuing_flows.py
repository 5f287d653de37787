"""The flows themselves go on with a run's settings: what the parameters of a deployment leave out is as the run has it,
and another method, environment or policy is refused before anything is sampled."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.evaluate import evaluate
from flows.iterate import iterate
from flows.train import train
from r3l.errors import ConfigError
from r3l.pipeline.settings.continuing import load_config
from r3l.store.stage import Store
from tests.flows.corridor import corridor
from tests.support.answers import ask
from tests.support.rehearsal import tiny_policy

__all__ = ["corridor"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server", "corridor")]
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"method": "raft"}, r"method\.kind=grpo, now raft"),
    ({"method": {"kind": "grpo", "clip_low": 0.1}}, r"method\.clip_low"),
    ({"environment": "webshop"}, r"environment\.kind=household, now webshop"),
    ({"environment": {"kind": "household", "max_turns": 5}}, r"environment\.max_turns"),
    ({"policy": "household"}, r"policy\.path=\S*start, now data/policies/household-easy-0"),
]


@pytest.fixture
def begun(tmp_path: Path) -> dict[str, Any]:
    """The parameters that name a run and no more; its iteration 0 was played by other settings than the usual ones."""
    place = {"run": "long", "store": {"root": str(tmp_path / "store")}}
    start = tiny_policy(tmp_path / "start", 0)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):  # the preflight reads them
        shutil.copy(f"data/policies/household-easy-0/{name}", start)
    other = {"environment": "household", "method": "grpo", "policy": {"path": str(start)}, "seed": 7}
    iterate(config=place | other | {"rollout": {"tasks": 2, "group_size": 4}})
    return place


def test_what_is_left_out_is_as_the_run_has_it(begun):
    store = Store.open(begun["store"]["root"])
    iterate(config=begun)
    train(config=begun, iterations=1)
    settings = [load_config(store, "long", "", number) for number in range(3)]
    assert {(one.method.kind, one.environment.kind, one.seed, one.rollout.tasks) for one in settings} == {
        ("grpo", "household", 7, 2)
    }
    assert settings[0] == settings[1] == settings[2]
    for flow, (other, message) in [(iterate, one) for one in OTHERS] + [(train, OTHERS[0])]:
        with pytest.raises(ConfigError, match=message):
            flow(config=begun | other)
    with pytest.raises(ConfigError, match=r"policy\.path"):
        evaluate(config=begun | {"policy": "household"})
    assert store.next_iteration("long", "") == 3
    iterate(config=begun | {"method": "raft", "change": True})
    assert ask(store, "SELECT iteration, subject_id, reason FROM events WHERE event = 'setting_changed'")[:1] == [
        {"iteration": 3, "subject_id": "method.kind", "reason": "grpo → raft"}
    ]
