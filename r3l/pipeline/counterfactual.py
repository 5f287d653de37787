"""What each method would have made of the groups that an iteration stored: credit and rows anew, nothing sampled and
nothing trained."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from r3l.config.compose import compose, preset_names
from r3l.config.methods.shared import MethodSettings
from r3l.errors import ConfigError, StoreError
from r3l.methods import plan
from r3l.methods.mass import Mass, mass_of
from r3l.pipeline.settings.continuing import load_config
from r3l.pipeline.stages import stage_io
from r3l.records import Episode, OraclePivot, Reflection, SamplingPlan
from r3l.store.layout import StageRef
from r3l.store.stage import Store


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A method's mass on the stored groups. `own`: it is the method that the iteration was run with."""

    preset: str
    mass: Mass
    own: bool = False


def counterfactuals(
    store: Store, run: str, branch: str, iteration: int, presets: Sequence[str] = ()
) -> tuple[list[Counterfactual], list[str]]:
    """Compute (what each method would have made of the iteration, the presets that sample other rollouts).

    Args:
        presets: method presets; empty: all of them.

    Raises:
        ConfigError: an unknown preset.
        StoreError: the iteration has no stored base trajectories.
    """
    config = load_config(store, run, branch, iteration)
    names = list(presets) or preset_names("methods")
    if unknown := sorted({*names} - {*preset_names("methods")}):
        raise ConfigError(f"unknown method preset {unknown[0]!r}: expected one of {', '.join(preset_names('methods'))}")
    settings: dict[str, MethodSettings] = {name: compose(method=name).method for name in names}
    size = config.rollout.group_size
    own_plan = per_task(config.method, size)
    without = replace(own_plan, continued_turns=0, continuations=0)  # a method that asks for none passes them over
    same = [name for name in names if per_task(settings[name], size) in (own_plan, without)]
    episodes, reflections, faults = rollouts(store, run, branch, iteration)
    own = Counterfactual("this run", mass_of(config.method, episodes, reflections, faults), own=True)
    others = [Counterfactual(name, mass_of(settings[name], episodes, reflections, faults)) for name in same]
    return [own, *others], [name for name in names if name not in same]


def per_task(settings: MethodSettings, group_size: int) -> SamplingPlan:
    """Plan what a method wants sampled for one task, however many tasks follow."""
    return replace(plan(settings, group_size), resample_rounds=0)


def rollouts(
    store: Store, run: str, branch: str, iteration: int
) -> tuple[list[Episode], list[Reflection], dict[str, int]]:
    """Read (all stored attempts of an iteration, its reflections, failed base to the turn that the oracle names)."""
    refs = store.stages(run, branch, iteration)

    def of_stage(*stages: str) -> list[StageRef]:
        return [ref for ref in refs if ref.stage in stages]

    attempts = of_stage("base", "retries", "distilled", "continuations")
    if not any(ref.stage == "base" for ref in attempts):
        raise StoreError(
            f"{run}: iteration {iteration} has no base trajectories in {store.root}; `r3l runs` lists the runs"
        )
    reflections = stage_io.records_of(store, of_stage("reflections"), "reflections", Reflection)
    verdicts = stage_io.records_of(store, of_stage("oracle_pivots"), "oracle_pivots", OraclePivot)
    faults = {one.trajectory_id: one.pivot_turn for one in verdicts if one.pivot_turn is not None}
    return stage_io.episodes(store, attempts), reflections, faults
