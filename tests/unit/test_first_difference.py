"""`r3l bisect` names the place and the cause of what was planted in a copy of the shipped run, and finds nothing in
equal ones."""

import json
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l.judge.compare import played_again
from r3l.stages import STAGES
from r3l.store import stage as committing
from r3l.store.differences.first_difference import Line, Parting, parting
from r3l.store.manifest import seal
from r3l.store.stage import Store
from r3l.store.tables.schemas import arrow_schema
from r3l.system.seeds import derive

SHIPPED, RUN = Path(__file__).parents[2] / "data" / "sample_run", "sample"
Rows = list[dict[str, Any]]
Change = Callable[[Rows], None]


def setting(name: str, value: object) -> dict[str, Any]:
    return {"settings": {name: value}}


def of(table: str, column: str, change: Callable[[Any], Any], at: int = 5) -> dict[str, Any]:
    """In the first row at or after `at` whose column holds something."""

    def planted(rows: Rows) -> None:
        row = next(row for row in rows[at % len(rows) :] + rows if row[column] not in (None, [], ""))
        row[column] = change(row[column])

    return {"table": table, "change": planted}


def nearest(values: list[float]) -> list[float]:
    return [*values[:-1], float(np.nextafter(np.float32(values[-1]), np.float32(-1e9)))]


def other_last(ids: list[int]) -> list[int]:
    return [*ids[:-1], ids[-1] + 1]


def swapped(rows: Rows) -> None:
    rows[1]["task_id"], rows[2]["task_id"] = rows[2]["task_id"], rows[1]["task_id"]


def more(value: float) -> float:
    return value + 0.5


PLANTED: list[tuple[str, int, str, dict[str, Any]]] = [
    ("settings", 0, "base", setting("rollout.temperature", 0.5)), ("settings", 1, "credit", setting("method.alpha", 7)),
    ("settings", 1, "updates", setting("training.learning_rate", 0.5)), ("settings", 0, "tasks", {"seed": 99}),
    ("prompts", 0, "base", setting("prompts", "other")), ("prompts", 1, "reflections", setting("prompts", "other")),
    ("code version", 0, "base", setting("code", 99)), ("code version", 0, "tasks", setting("world", 99)),
    ("code version", 0, "credit", of("credit", "advantage", more)),
    ("code version", 1, "distilled", of("trajectories", "reward", more)), ("policy", 0, "base", {"policy": "other"}),
    ("policy", 1, "reflections", {"policy": "other"}),
    ("task order", 0, "tasks", {"table": "tasks", "change": swapped}),
    ("task order", 1, "tasks", of("tasks", "task_id", lambda name: name + "-other")),
    ("environment's answer", 0, "base", of("turns", "observation", lambda text: text + " It rains.")),
    ("environment's answer", 1, "base", of("turns", "context_ids", other_last, at=40)),
    ("environment's answer", 0, "retries", of("trajectories", "reward", more)),
    ("sampled token", 0, "base", of("turns", "response_ids", other_last)),
    ("sampled token", 1, "base", of("turns", "response_ids", lambda ids: ids[:-1], at=60)),
    ("sampled token", 1, "reflections", of("reflections", "response_ids", other_last)),
    ("arithmetic only", 0, "base", of("turns", "response_logprobs", nearest)),
    ("arithmetic only", 1, "reflections", of("reflections", "response_logprobs", nearest)),
    ("update", 0, "updates", of("updates", "loss", more)),
    ("update", 1, "updates", of("updates", "policy", lambda digest: "other")),
]  # fmt: skip


SECONDS = {"base": ("trajectories", "seconds"), "reflections": ("reflections", "seconds")}  # wall times


@pytest.mark.parametrize(("cause", "iteration", "stage", "plant"), PLANTED)
def test_a_planted_cause_is_named_at_its_place(tmp_path, cause, iteration, stage, plant):
    found = compared(tmp_path, iteration, stage, plant)
    assert found is not None
    assert (found.cause, found.iteration, found.stage) == (cause, iteration, stage)
    assert found.a != found.b
    assert not plant.get("table") or found.what.startswith(plant["table"])


def test_a_sampled_token_comes_with_its_place_and_the_number_that_decided(tmp_path: Path) -> None:
    found = compared(tmp_path, 0, "base", of("turns", "response_ids", other_last))
    assert found is not None
    store = Store.open(str(SHIPPED), reading=True)
    [ref] = [ref for ref in store.stages(RUN, "", 0) if (ref.stage, ref.shard) == ("base", 0)]
    turn = store.read(ref, "turns").to_pylist()[5]
    seeds = {row["trajectory_id"]: row["seed"] for row in store.read(ref, "trajectories").to_pylist()}
    assert (found.row, found.turn, found.token) == (turn["trajectory_id"], turn["turn"], len(turn["response_ids"]) - 1)
    assert found.more["log-probabilities"] == [turn["response_logprobs"][-1]] * 2
    chance = random.Random(derive(seeds[turn["trajectory_id"]], turn["trajectory_id"], turn["turn"]))
    numbers = [chance.random() for _ in turn["response_ids"]]
    assert found.more["uniform number"] == numbers[-1]


@pytest.mark.parametrize("stage", ["base", "reflections", "retries", "credit", "updates"])
def test_the_same_rows_committed_again_are_no_parting(tmp_path: Path, stage: str) -> None:
    slower = of(*SECONDS[stage], more) if stage in SECONDS else {}
    assert compared(tmp_path, 1, stage, slower) is None


def test_equal_runs_do_not_part(tmp_path: Path) -> None:
    assert compared(tmp_path, 1, "updates", {}) is None
    store = Store.open(str(SHIPPED), reading=True)
    assert parting(Line(store, RUN), Line(store, RUN)) is None
    shutil.rmtree(tmp_path / "copy" / RUN / "iteration=00001")
    assert parting(Line(store, RUN), Line(Store.open(str(tmp_path / "copy"), reading=True), RUN)) is None


def test_a_branch_parts_at_the_setting_that_made_it() -> None:
    words = ["bisect", RUN, f"{RUN}/alpha-5", "--store", str(SHIPPED), "--json"]
    done = CliRunner().invoke(app_of(words[:1]), words)
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (found["cause"], found["stage"], found["what"]) == ("settings", "credit", "method.alpha")
    assert found["more"]["made again"] == ["comes again from its settings and parents"] * 2


def test_another_machine_is_said_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = of("turns", "response_logprobs", nearest)
    monkeypatch.setattr(committing, "this_machine", lambda: {"processor": "one"})
    assert compared(tmp_path, 0, "base", plant) is not None
    copy = Store.open(str(tmp_path / "copy"))
    monkeypatch.setattr(committing, "this_machine", lambda: {"processor": "another"})
    (tmp_path / "more").mkdir()
    assert compared(tmp_path / "more", 0, "base", {}) is None
    found = parting(Line(copy, RUN), Line(Store.open(str(tmp_path / "more" / "copy")), RUN))
    assert found is not None
    assert str(found).splitlines()[0] == "made on different machines: processor one and another"


def test_a_replay_is_compared_stage_by_stage(tmp_path: Path) -> None:
    assert compared(tmp_path, 1, "base", {}) is None
    store = Store.open(str(tmp_path / "copy"))
    for stage in ("base", "retries"):  # a branch that made them again, one of them with another token
        for ref in [ref for ref in store.stages(RUN, "", 1) if ref.stage == stage]:
            tables = {table: store.read(ref, table) for table in (*STAGES[stage].tables, "events")}
            if (stage, ref.shard) == ("retries", 1):
                rows = tables["turns"].to_pylist()
                rows[3]["response_ids"] = other_last(rows[3]["response_ids"])
                tables["turns"] = pa.Table.from_pylist(rows, arrow_schema("turns"))
            manifest = store.manifest(ref)
            inputs = {name: manifest[name] for name in ("settings", "policy", "seed")}
            store.commit(replace(ref.key, branch="again"), tables, fingerprint=ref.fingerprint, parents=[], **inputs)
    base, retries = played_again(store, RUN, 1, "", "again")
    assert (base.stage, base.shards, base.equal, base.first) == ("base", 2, 2, None)
    assert (retries.stage, retries.shards, retries.equal) == ("retries", 2, 1)
    assert retries.first is not None
    assert (retries.first.cause, retries.first.shard, retries.first.row) == (
        "sampled token",
        1,
        rows[3]["trajectory_id"],
    )


@pytest.mark.slow
def test_a_parting_after_100_iterations_takes_less_than_a_minute_of_processor(tmp_path: Path) -> None:
    for number in range(100):  # the two shipped ones again and again
        folder = tmp_path / RUN / f"iteration={number:05d}"
        shutil.copytree(SHIPPED / RUN / f"iteration={number % 2:05d}", folder)
        for path in folder.rglob("stage.json"):
            manifest = json.loads(path.read_text())
            del manifest["checksum"]
            path.write_bytes(seal(manifest | {"iteration": number}))
    shutil.copytree(tmp_path / RUN, tmp_path / "copy" / RUN)
    began = time.process_time()
    assert parting(Line(Store.open(str(tmp_path)), RUN), Line(Store.open(str(tmp_path / "copy")), RUN)) is None
    shutil.rmtree(tmp_path / "copy")
    shutil.copytree(tmp_path / RUN, tmp_path / "shipped" / RUN)
    found = compared(tmp_path, 99, "retries", of("turns", "response_ids", other_last), shipped=tmp_path / "shipped")
    assert found is not None
    assert (found.iteration, found.cause) == (99, "sampled token")
    assert time.process_time() - began < 60


def compared(
    folder: Path, iteration: int, stage: str, plant: dict[str, Any], shipped: Path = SHIPPED
) -> Parting | None:
    """Return where the shipped run and a copy of it part, of whose stage (of the first shard) something is changed."""
    shutil.copytree(shipped / RUN, folder / "copy" / RUN)
    original, copy = Store.open(str(shipped), reading=True), Store.open(str(folder / "copy"))
    ref = next(ref for ref in copy.stages(RUN, "", iteration) if ref.stage == stage)
    manifest = copy.manifest(ref)
    tables = {table: copy.read(ref, table) for table in (*STAGES[stage].tables, "events")}
    if table := plant.get("table"):
        rows = tables[table].to_pylist()
        plant["change"](rows)
        tables[table] = pa.Table.from_pylist(rows, arrow_schema(table))
    shutil.rmtree(folder / "copy" / ref.key.folder)
    inputs = {name: value for name, value in plant.items() if name not in {"table", "change"}}
    copy.commit(
        ref.key, tables, fingerprint="f" * 64 if inputs else ref.fingerprint, parents=[],
        settings=manifest["settings"] | inputs.get("settings", {}), policy=inputs.get("policy", manifest["policy"]),
        seed=inputs.get("seed", manifest["seed"]),
    )  # fmt: skip
    return parting(Line(original, RUN), Line(copy, RUN))
