"""An environment without torch, transformers and peft runs the flows: sampling by HTTP servers, the update by another
process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.flows.small import served_config
from tests.support.scripted_player import ScriptedPlayer

HEAVY = ("torch", "transformers", "peft", "accelerate", "vllm")
WITHOUT = f"""
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ImportError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Blocked())
"""
ITERATE = (
    WITHOUT
    + """
import json, subprocess
import flows.iterate
from flows.placement import remote_jobs
from flows.iterate import iterate
from r3l.config import Config

class Done:
    id, name = 0, "elsewhere"

    class state:
        is_final = is_running = is_cancelling = is_crashed = staticmethod(lambda: False)

def submit(errand, attempt):
    parameters = errand.parameters | {"attempt": attempt}
    code = "import json, sys; from flows.placement.remote_update import update; update.fn(**json.loads(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, json.dumps(parameters)], check=True)
    return Done

remote_jobs.submit = submit
flows.iterate.check_placement = lambda settings: None
ended = type("Ended", (), {"is_final": lambda self: True, "is_crashed": lambda self: False})()
remote_jobs.state_of = lambda run: ended
config = Config.model_validate_json(sys.argv[1])
iterate(config)

from r3l.audit.web.app import make_app
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.query import query
from r3l.store.stage import Store
import flows.cli.app, flows.cli.commands.look, flows.cli.commands.tables, flows.evaluate, flows.replay, flows.train

store = Store.open(config.store.root)
assert check_run(store, "small") == []
QUESTION = "SELECT trained_tokens FROM iterations"
with connect(store, question=QUESTION) as connection:
    print(query(connection, QUESTION).to_pylist()[0]["trained_tokens"])
"""
)
pytestmark = pytest.mark.usefixtures("prefect_server")


def run(code: str, *arguments: str) -> str:
    from prefect.settings import PREFECT_API_URL

    environment = os.environ | {"PREFECT_API_URL": PREFECT_API_URL.value() or ""}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_an_iteration_and_its_questions_without_torch(tmp_path: Path) -> None:
    server = ScriptedPlayer()
    given = ("environment.max_turns=12", "rollout.tasks=4", "placement.update_deployment=r3l-update/update")
    config = served_config(tmp_path, server.url, *given)
    trained = int(run(ITERATE, config.model_dump_json()))
    server.stop()
    assert trained > 0
    store = Store.open(str(tmp_path))
    assert check_run(store, "small") == []
    result = json.loads((tmp_path / "small/policies/iteration=00000/result.json").read_text())
    [row] = store.read(store.stages("small")[-1], "updates", ["policy", "loss"]).to_pylist()
    assert row == {"policy": result["result"]["policy"], "loss": pytest.approx(result["result"]["loss"])}


@pytest.mark.slow
def test_neither_the_preflight_nor_the_start_of_sampling_waits_for_what_it_does_not_need(tmp_path):
    """Settings, policy, tokenizer and tasks are looked over within a second, where torch alone takes longer; a policy
    that the engine knows samples without transformers, and without torch's compiler; the flow needs neither Prefect's
    server nor the flow of shards on other hosts."""
    looked = f"""
import sys
from r3l.config import compose
from r3l.pipeline import preflight
from r3l.pipeline.iteration import open_iteration
lean = ["training.processes=0", "environment.workers=1", "store.root={tmp_path}"]
config = compose(assignments=lean, environment="household", policy="embedded")
store = preflight.check(config)
print(*sorted({{"torch", "transformers", "prefect"}} & set(sys.modules)))
with open_iteration(config, store, 0) as bench:
    bench.explorer.engine.score(bench.chat.opening([{{"role": "user", "content": "look"}}]))
print(*sorted({{"transformers", "torch._dynamo", "sympy", "prefect"}} & set(sys.modules)))
import flows.iterate
print(*sorted({{"flows.placement.remote_shard", "prefect.server"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split("\n")) == (0, ["", "", "", ""]), done.stderr
