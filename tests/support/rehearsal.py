"""A method's whole iteration in the corridor: real exploration stages, credit, training rows and update; only the
policy is scripted."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from r3l.config.methods import AnyMethod
from r3l.exploration import stages
from r3l.methods import counted_groups, credit_stage, plan, training_rows_stage
from r3l.store.tables.schemas import arrow_schema
from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.update import run_update
from tests.support.fakes import explorer
from tests.support.records import corridor_task as task
from tests.support.records import report

GUIDE = "previous attempt"
TASKS = [task(slot=0), task(slot=1)]
Tables = dict[str, dict[str, list[Any]]]


def walker(request_id: str, prompt: str) -> str:
    """Wins from the start as base 1 of task 0 only; else it walks into the trap at turn 2. Guided it wins, but for base
    0 of task 1, whose retry dawdles to the turn limit. What it reflects is right, the pivot is turn 2."""
    if "/reflection=" in request_id:
        won = "Reward: 1.0" in prompt
        return report(0, "success") if won else report(2)
    turn = int(request_id.rsplit("=", 1)[1])
    if GUIDE in prompt:
        return "!wait" if "task=1/base=0" in request_id else "!right"
    return "!right" if turn < 2 or "task=0/base=1/" in request_id else "!trap"


def both_tables(found: list[Any]) -> dict[str, list[Any]]:
    """The two tables of episodes."""
    return {
        "trajectories": [one.trajectory for one in found],
        "turns": [turn for one in found for turn in one.turns],
    }


def rehearse(settings: AnyMethod, group_size: int = 4) -> tuple[Tables, int]:
    """(the tables of every stage, groups that count in the batch's mean)."""
    wanted = plan(settings, group_size)
    world = explorer(walker)
    bases = stages.base_stage(world, TASKS, wanted)
    reflections, retries, distilled, diverged = [], [], [], []
    for attempt in range(wanted.retries_per_base if wanted.reflection != "none" else 0):
        abouts = stages.latest(bases, distilled)
        found = stages.reflections_stage(world, TASKS, wanted, bases, abouts, attempt)
        played = stages.retries_stage(world, TASKS, wanted, bases, abouts, found)
        stitched, events = stages.distilled_stage(abouts, played)
        reflections, retries, distilled, diverged = (
            reflections + found,
            retries + played,
            distilled + stitched,
            diverged + events,
        )
    continued, lost = stages.continuations_stage(world, TASKS, wanted, bases) if wanted.continuations else ([], [])
    members = [*bases, *retries, *distilled, *continued]
    turns = [turn for one in members for turn in one.turns]
    credit, dropped = credit_stage(settings, [one.trajectory for one in members], turns)
    rows, events = training_rows_stage(settings, [*bases, *retries, *distilled], reflections, credit)

    return {
        "tasks": {"tasks": TASKS},
        "base": both_tables(bases),
        "reflections": {"reflections": reflections},
        "retries": both_tables(retries),
        "distilled": {**both_tables(distilled), "events": diverged},
        **({"continuations": {**both_tables(continued), "events": lost}} if continued else {}),
        "credit": {"credit": credit, "events": dropped},
        "training_rows": {"training_rows": rows, "events": events},
    }, counted_groups(credit)


def tiny_policy(folder: Path, seed: int) -> str:
    """A random policy over characters, with no tokenizer: the update needs none."""
    torch.manual_seed(seed)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=8192, initializer_range=0.1, bos_token_id=None,
            eos_token_id=1,
        )
    ).save_pretrained(str(folder))  # fmt: skip
    return str(folder)


def update(folder: Path, rows: list[Any], groups: int, **job: Any) -> dict[str, Any]:
    """One optimiser step over training rows; the policy that sampled them is `policy-0`."""
    folder.mkdir()
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=arrow_schema("training_rows"))
    pq.write_table(table, folder / "rows.parquet")
    job = {"training": {"learning_rate": 1e-2, "device": "cpu"}} | job
    spec = Job(rows=[str(folder / "rows.parquet")], groups=groups, out=str(folder / "out"), **job)
    return run_update(spec, Ranks(), lambda event, **fields: None)
