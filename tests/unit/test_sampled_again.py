"""`r3l check --sample-again`: the shipped run sampled again by an engine that gives the stored replies, or others."""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l.config import compose
from r3l.engines.base import Completion, Sampling
from r3l.exploration.explorer import Explorer
from r3l.judge import sampled_again
from r3l.judge.alone import SamplingBench, comes_again
from r3l.judge.bench import Bench
from r3l.judge.recorded import Recorded
from r3l.judge.sampled_again import EVENT, sample_again
from r3l.store.check import check_run
from r3l.store.layout import StageKey
from r3l.store.manifest import reference
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from r3l.store.tables.schemas import arrow_schema
from r3l.system import machine
from tests.flows.corridor import corridor, iteration
from tests.support.rehearsal import tiny_policy

__all__ = ["corridor"]

SHIPPED, RUN = Path(__file__).parents[2] / "data" / "sample_run", "sample"
SAME = "equal, bit for bit"
Change = Callable[[Completion], Completion]


class Other:
    """The stored replies, but for the first of the request that is named: that one is changed."""

    def __init__(self, recorded: Recorded, change: Change) -> None:
        self.recorded, self.change, self.changed = recorded, change, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recorded, name)

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        reply = self.recorded.complete(request_id, prompt_ids, sampling)
        if self.changed:
            return reply
        self.changed, other = request_id, Future[Completion]()
        other.set_result(self.change(reply.result()))
        return other


def nearest(reply: Completion) -> Completion:
    last = float(np.nextafter(np.float32(reply.logprobs[-1]), np.float32(-1e9)))
    return replace(reply, logprobs=[*reply.logprobs[:-1], last])


def shorter(reply: Completion) -> Completion:
    return replace(reply, token_ids=reply.token_ids[:-1], logprobs=reply.logprobs[:-1])


def kept(reply: Completion) -> Completion:
    return reply


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The shipped run, its reflections committed on this machine. The others need games that may not be here."""
    shutil.copytree(SHIPPED / RUN / "iteration=00000", tmp_path / RUN / "iteration=00000")
    store, of_all = Store.open(str(tmp_path)), sampled_again.sampled
    for ref in [ref for ref in store.stages(RUN) if ref.stage == "reflections"]:
        manifest = store.manifest(ref)
        tables = {table: store.read(ref, table) for table in ("reflections", "events")}
        inputs = {name: manifest[name] for name in ("settings", "policy", "seed")}
        parents = [reference(parent) for parent in manifest["parents"]]
        store.commit(ref.key, tables, fingerprint=ref.fingerprint, parents=parents, **inputs)
    monkeypatch.setattr(
        sampled_again, "sampled", lambda place: [one for one in of_all(place) if one["stage"] == "reflections"]
    )
    return store


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Give what samples again an engine that knows the stored replies, and changes the first that it is asked for."""

    def answer(change: Change) -> None:
        def start(bench: SamplingBench) -> Explorer:
            one_worker = bench.config.environment.model_copy(update={"workers": 1})
            bench.config = bench.config.model_copy(update={"environment": one_worker})
            explorer = Bench._start(bench)
            return replace(explorer, engine=Other(explorer.engine, change))

        monkeypatch.setattr(SamplingBench, "_start", start)

    return answer


def test_equal_replies_are_said_to_be_equal_and_noted_beside_the_rows(store: Store, answering: Any) -> None:
    answering(kept)
    before = {ref.key: ref.digest for ref in store.stages(RUN)}
    first, second = sample_again(store, RUN, 2, random.Random(0))
    assert {first.key.shard, second.key.shard} == {0, 1}
    assert (first.reason, first.promised, first.broken, first.agreement.farthest) == (SAME, True, False, 0.0)
    assert first.agreement.replies == first.agreement.same_tokens == first.agreement.same_bits == 16
    assert {ref.key: ref.digest for ref in store.stages(RUN)} == before
    assert check_run(store, RUN) == []
    assert noted(store, first.key) == [(EVENT, SAME)]
    [once_more] = sample_again(store, RUN, 1, random.Random(0))
    assert noted(store, once_more.key) == [(EVENT, SAME)] * 2


@pytest.mark.parametrize(
    ("change", "cause", "same_tokens", "same_bits"),
    [(nearest, "arithmetic only", 16, 15), (shorter, "sampled token", 15, 15)],
)
def test_another_reply_is_named_with_its_place(store, answering, change, cause, same_tokens, same_bits):
    answering(change)
    [one] = sample_again(store, RUN, 1, random.Random(0))
    assert one.broken
    assert one.first is not None
    assert (one.first.cause, one.first.shard) == (cause, one.key.shard)
    assert (one.agreement.same_tokens, one.agreement.same_bits) == (same_tokens, same_bits)
    assert (one.agreement.farthest > 0) == (cause == "arithmetic only")
    assert noted(store, one.key) == [(EVENT, f"{cause} differs")]


def test_bits_of_another_machine_or_engine_are_measured_not_blamed(store, answering, monkeypatch):
    answering(nearest)
    here = machine.this_machine()
    monkeypatch.setattr(sampled_again, "this_machine", lambda: here | {"processor": "another", "torch": "9.9"})
    [one] = sample_again(store, RUN, 1, random.Random(0))
    assert not one.broken
    assert one.machines == {"processor": (here["processor"], "another"), "torch": (here["torch"], "9.9")}
    assert str(one).splitlines()[1] == f"  another machine: processor another (was {here['processor']})"
    monkeypatch.setattr(sampled_again, "this_machine", lambda: here)
    monkeypatch.setattr(sampled_again, "invariant", lambda config: False)  # as of vLLM
    [one] = sample_again(store, RUN, 1, random.Random(0))
    assert (one.broken, one.agreement.same_bits) == (False, 15)


def test_a_policy_that_is_not_here_is_named(store: Store) -> None:
    other = Store.open(str(store.root))
    for ref in [ref for ref in other.stages(RUN) if ref.stage == "reflections"]:
        tables = {table: store.read(ref, table) for table in ("reflections", "events")}
        settings = store.manifest(ref)["settings"]
        store.commit(ref.key, tables, fingerprint=ref.fingerprint, settings=settings, policy="f" * 16)
    [one] = sample_again(store, RUN, 1, random.Random(0))
    assert one.unmade.startswith("f" * 16)
    assert not one.broken


def test_the_command_ends_with_exit_code_1_where_bits_differ(store: Store, answering: Any) -> None:
    answering(nearest)
    words = ["check", RUN, "--store", str(store.root), "--quick", "--sample-again", "1"]
    done = CliRunner().invoke(app_of(words[:1]), words)
    assert done.exit_code == 1
    assert "15 of the same bits" in done.stdout
    assert "1 findings" in done.stdout


def test_bisect_makes_the_stage_again_and_says_which_side_follows(store: Store) -> None:
    key = next(ref.key for ref in store.stages(RUN) if ref.stage == "credit")
    assert comes_again(store, key).startswith("comes again")
    rows = store.read(reference(store.manifest(key)), "credit").to_pylist()
    rows[3]["advantage"] += 0.5
    manifest = store.manifest(key)
    parents = [reference(parent) for parent in manifest["parents"]]
    tables = {"credit": pa.Table.from_pylist(rows, arrow_schema("credit"))}
    store.commit(
        key, tables, fingerprint=manifest["fingerprint"], parents=parents, settings=manifest["settings"],
        seed=manifest["seed"],
    )  # fmt: skip
    assert comes_again(store, key).startswith("does not come again: credit: row 3")


def test_bisect_takes_the_step_of_both_sides_again_and_says_which_one_differs(corridor: None, tmp_path: Path) -> None:
    one = Store.open(str(tmp_path / "one"))
    given = [f"policy.path={tiny_policy(tmp_path / 'start', 0)}", "rollout.tasks=2", "rollout.group_size=4"]
    for number in range(2):
        iteration(compose(run=RUN, assignments=[*given, f"store.root={one.root}"]), one, number)
    shutil.copytree(one.root, tmp_path / "other")
    other = Store.open(str(tmp_path / "other"))
    key = StageKey(RUN, "", 1, "updates")
    # whose step came out otherwise: its row, its weights and its manifest agree with each other
    weights = tmp_path / "other" / RUN / "policies" / "iteration=00001" / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + bytes(4))
    manifest = other.manifest(key)
    row = other.read(reference(manifest), "updates").to_pylist()[0] | {"policy": snapshot_digest(weights.parent)}
    inputs = {name: manifest[name] for name in ("fingerprint", "settings", "policy", "seed")}
    parents = [reference(parent) for parent in manifest["parents"]]
    other.commit(key, {"updates": pa.Table.from_pylist([row], arrow_schema("updates"))}, parents=parents, **inputs)

    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file())
    found = bisect(one, other, "--again")
    assert (found["cause"], found["iteration"], found["stage"]) == ("update", 1, "updates")
    sound, false = found["more"]["made again"]
    assert sound == "comes again from its settings and parents"
    assert false.startswith("does not come again: updates: row 0")
    assert false.endswith(f'policy is "{row["policy"]}", computed: "{found["a"]}"')
    assert bisect(one, other)["more"]["made again"] == ["not made again: an update takes a training (--again)"] * 2
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()) == before
    shutil.rmtree(tmp_path / "one" / RUN / "policies" / "iteration=00000")
    [lost, _] = bisect(one, other, "--again")["more"]["made again"]
    assert lost.startswith("not made again: ")
    assert "iteration=00000" in lost
    first = StageKey(RUN, "", 0, "updates")
    assert comes_again(other, first, train=True).startswith("comes again")
    tiny_policy(tmp_path / "start", 1)  # another one in its place
    assert "not made again: it went on from policy" in comes_again(other, first, train=True)


def bisect(one: Store, other: Store, *words: str) -> dict[str, Any]:
    words = ("bisect", RUN, RUN, "--store", str(one.root), "--other-store", str(other.root), "--json", *words)
    done = CliRunner().invoke(app_of(words[:1]), words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def noted(store: Store, key: StageKey) -> list[tuple[str, str]]:
    events = store.read(reference(store.manifest(key)), "events").to_pylist()
    return [(row["event"], row["reason"]) for row in events if row["event"] == EVENT]
