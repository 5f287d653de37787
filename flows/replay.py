"""The flow `r3l-replay`: recompute an iteration from a stored stage on, into a sibling branch. The original is never touched."""

from __future__ import annotations

from typing import Any

from flows import prefect_settings

prefect_settings.apply()

from prefect import flow  # noqa: E402

from flows import policies  # noqa: E402
from flows.iterate import RUNNER, WATCHED, stages  # noqa: E402
from flows.logs import log  # noqa: E402
from flows.recorded import load_config, save_config  # noqa: E402
from flows.workbench import Replay, Workbench  # noqa: E402
from r3l.config import Config  # noqa: E402
from r3l.config.compose import assigned, validated  # noqa: E402
from r3l.errors import ConfigError  # noqa: E402
from r3l.exploration.tally import Tally  # noqa: E402
from r3l.store.layout import StageRef  # noqa: E402
from r3l.store.schemas import STAGES  # noqa: E402
from r3l.store.stage import Store  # noqa: E402

ORDER = [stage for stage in STAGES if stage != "evaluations"]


@flow(name="r3l-replay", flow_run_name="{run} iteration={iteration} from {from_stage}", task_runner=RUNNER)
def replay(run: str, iteration: int, from_stage: str = "credit", to_stage: str = "updates", assignments: list[str] | None = None,
           branch: str = "", source_branch: str = "", store: str = "") -> dict[str, Any]:
    """Recompute stages of a stored iteration into a branch.

    Args:
        run: name of the run.
        iteration: which iteration of it.
        from_stage: first stage that is computed again: tasks, base, oracle_pivots, reflections, retries, distilled, credit,
            training_rows, updates.
        to_stage: last stage that is computed.
        assignments: settings to change, each as key=value, for example method.alpha=5; empty proves that nothing changes.
        branch: name of the new branch; empty: replay-1, replay-2, ...
        source_branch: the branch that is replayed; empty: the run itself.
        store: folder or s3:// address of the store; empty: R3L_STORE, else data/runs.
    """
    opened = Store.open(store)
    check_stages(from_stage, to_stage)
    recorded = load_config(opened, run, source_branch, iteration)
    settings = assigned(recorded.model_dump(mode="json"), assignments or [])
    name = branch or free_branch(opened, run)
    config = validated(settings | {"branch": name, "iteration": iteration, "store": {"root": opened.root}})
    with opened.writer_lock(run, name, iteration):
        save_config(opened, config, iteration)
        tally = WATCHED.get(run) or Tally()
        found = policies.find(source(config, source_branch), opened, iteration)
        bench = Workbench(config, opened, iteration, found, tally, Replay(source_branch, from_stage, to_stage))
        try:
            refs = stages(bench)
        finally:
            bench.close()
    log().info("replayed %s iteration %d from %s into branch %s", run, iteration, from_stage, name)
    return {"run": run, "iteration": iteration, "branch": name, "source_branch": source_branch, "store": opened.root,
            "stages": compared(opened, refs, source_branch)}


def check_stages(first: str, last: str) -> None:
    """Raises `ConfigError` for a stage that is none, or an order that is none."""
    for stage in (first, last):
        if stage not in ORDER:
            raise ConfigError(f"unknown stage {stage!r}: expected one of {', '.join(ORDER)}")
    if ORDER.index(first) > ORDER.index(last):
        raise ConfigError(f"--from {first} comes after --to {last}; the order is {', '.join(ORDER)}")


def source(config: Config, branch: str) -> Config:
    return config.model_copy(update={"branch": branch})


def free_branch(store: Store, run: str) -> str:
    """replay-1, or the first number that no branch has."""
    taken = store.branches(run)
    return next(name for number in range(1, len(taken) + 2) if (name := f"replay-{number}") not in taken)


def compared(store: Store, refs: list[StageRef], source_branch: str) -> list[dict[str, Any]]:
    """For each replayed stage, whether it came out as the original: same fingerprint, same rows."""
    originals = {(ref.stage, ref.shard): ref for ref in store.stages(refs[0].run, source_branch, refs[0].iteration)} if refs else {}
    rows = []
    for ref in refs:
        original = originals.get((ref.stage, ref.shard))
        rows.append({"stage": ref.stage, "shard": ref.shard, "replayed": ref.branch != source_branch,
                     "same_settings": original is not None and original.fingerprint == ref.fingerprint,
                     "same_rows": original is not None and original.digest == ref.digest})
    return rows
