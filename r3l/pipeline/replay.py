"""Recompute an iteration from a stored stage on, into a sibling branch. The original is never touched."""

from typing import TypedDict

from r3l.config import Config
from r3l.config.compose import assign, validate
from r3l.config.sections import PolicySettings
from r3l.errors import ConfigError
from r3l.methods import plan
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.logs import log
from r3l.pipeline.runner import Runner
from r3l.pipeline.settings.continuing import PLACE, changes, load_config, newest_begun, stages_of_setting
from r3l.pipeline.stages.identity import plan_of_stage
from r3l.pipeline.workbench import Placement, Replay
from r3l.stages import stages_that
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from r3l.system.nested import leaves

ORDER = stages_that(lambda stage: not stage.apart)


class ReplayedStage(TypedDict):
    """A stage of a replay beside the original: whether it has the same settings, and the same rows."""

    stage: str
    shard: int | None
    replayed: bool
    same_settings: bool
    same_rows: bool


class Replayed(TypedDict):
    """What a replay made."""

    run: str
    iteration: int
    branch: str
    source_branch: str
    store: str
    stages: list[ReplayedStage]


def recompute(
    store: Store,
    run: str,
    iteration: int,
    asked: Replay,
    assignments: list[str],
    branch: str = "",
    *,
    runner: Runner | None = None,
    placement: Placement | None = None,
) -> Replayed:
    """Recompute stages of a stored iteration into a branch, and compare each with the original.

    Args:
        asked: first and last stage that is computed, and the branch that is replayed.
        assignments: settings to change, each as ``key=value``.
        branch: name of the new branch; empty: replay-1, replay-2, ...

    Raises:
        ConfigError: an unknown stage, a last stage before the first, an unknown setting, one of a stage that is not
            replayed, or a branch that holds something else.
        StoreError: the iteration was never begun.
    """
    config = replay_config(store, run, iteration, asked, assignments, branch)
    name = config.branch
    with open_iteration(config, store, iteration, runner=runner, placement=placement, replay=asked) as bench:
        refs = run_stages(bench)
    log().info("replayed %s iteration %d from %s into branch %s", run, iteration, asked.from_stage, name)
    return {
        "run": run,
        "iteration": iteration,
        "branch": name,
        "source_branch": asked.source_branch,
        "store": store.root,
        "stages": compare_stages(store, refs, asked.source_branch),
    }


def replay_config(
    store: Store, run: str, iteration: int, asked: Replay, assignments: list[str], branch: str = ""
) -> Config:
    """Make the settings of the branch that a replay makes: of an unstarted one too, to know beforehand what is
    wrong.

    Raises:
        ConfigError: as `recompute`.
        StoreError: the iteration was never begun.
    """
    check_stages(asked.from_stage, asked.to_stage)
    saved_config = load_config(store, run, asked.source_branch, iteration)
    settings = assign(saved_config.model_dump(mode="json"), assignments)
    place = {"branch": branch or free_branch(store, run), "iteration": iteration, "store": {"root": store.root}}
    config = validate(settings | place)
    for name in leaves(assign({}, assignments)):
        check_taken(saved_config, config, name, asked)
    refuse_other_branch(store, config)
    return config


def refuse_other_branch(store: Store, config: Config) -> None:
    """Raise `ConfigError` where the branch holds something else than this replay: its stages would be written over, and
    what was trained on them would stay."""
    begun = newest_begun(store, config.run, config.branch)
    if begun is None or begun[1].branch != config.branch:
        return
    number, before = begun
    other_settings = "; ".join(map(str, changes(before, config)))
    if number != config.iteration or other_settings:
        raise ConfigError(
            f"branch {config.branch} of run {config.run} is there, and has come to iteration {number}"
            f"{other_settings and f' with other settings ({other_settings})'}; name a new branch, or leave --branch out"
        )


def check_taken(before: Config, config: Config, name: str, asked: Replay) -> None:
    """Raise `ConfigError` for a setting that the replayed stages do not go by: nothing would come of it, or a batch of
    which a part was made otherwise."""
    if name.partition(".")[0] in PLACE:
        raise ConfigError(f"{name}: a replay goes by the arguments of the command, and makes a branch; leave it out")
    # a run's first iteration is sampled with the policy of that folder, later ones with what an update wrote
    is_sampled_from = name == "policy.path" and config.iteration == 0
    stages = PolicySettings.IDENTITY_OF if is_sampled_from else stages_of_setting(config, name)
    of_replays = [stage for stage in ORDER if stage in stages]
    if stages and not of_replays:
        raise ConfigError(f"{name} belongs to {stages[0]}, which no replay makes; set it for `r3l evaluate`")
    method = name.startswith("method.") and before.method.kind == config.method.kind
    planned_stages = [stage for stage in ORDER if method and _plan(before, stage) != _plan(config, stage)]
    first, last = ORDER.index(asked.from_stage), ORDER.index(asked.to_stage)
    places = [ORDER.index(stage) for stage in of_replays]
    # another method is credited on what is stored; a plan is not
    if planned_stages and ORDER.index(planned_stages[0]) < first:
        raise ConfigError(f"{name} belongs to {planned_stages[0]}; use --from {planned_stages[0]}")
    if places and not any(first <= place <= last for place in places):
        way = "--from" if places[0] < first else "--to"
        raise ConfigError(f"{name} belongs to {of_replays[0]}; use {way} {of_replays[0]}")


def _plan(config: Config, stage: str) -> object:
    return plan_of_stage(plan(config.method, config.rollout.group_size), stage)


def check_stages(first: str, last: str) -> None:
    """Raise `ConfigError` for an unknown stage or a wrong order."""
    for stage in (first, last):
        if stage not in ORDER:
            raise ConfigError(f"unknown stage {stage!r}: expected one of {', '.join(ORDER)}")
    if ORDER.index(first) > ORDER.index(last):
        raise ConfigError(f"--from {first} comes after --to {last}; the order is {', '.join(ORDER)}")


def free_branch(store: Store, run: str) -> str:
    """Find `replay-1`, or the first such name that no branch has."""
    branches = store.branches(run)
    return next(name for number in range(1, len(branches) + 2) if (name := f"replay-{number}") not in branches)


def compare_stages(store: Store, refs: list[StageRef], source_branch: str) -> list[ReplayedStage]:
    """Compare each replayed stage with the original: same fingerprint, same rows."""
    originals = (
        {(ref.stage, ref.shard): ref for ref in store.stages(refs[0].run, source_branch, refs[0].iteration)}
        if refs
        else {}
    )
    pairs = [(ref, originals.get((ref.stage, ref.shard))) for ref in refs]
    return [
        {
            "stage": ref.stage,
            "shard": ref.shard,
            "replayed": ref.branch != source_branch,
            "same_settings": original is not None and original.fingerprint == ref.fingerprint,
            "same_rows": original is not None and original.digest == ref.digest,
        }
        for ref, original in pairs
    ]
