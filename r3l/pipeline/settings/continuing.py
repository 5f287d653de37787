"""A run goes on with its own settings: those of its newest iteration, and what is asked for on top of them. What would
make it another run is refused, unless that is asked for by name."""

from typing import Any, NamedTuple

from pydantic import ValidationError

from r3l.config import Config
from r3l.config.complaints import complaint
from r3l.config.compose import Asked, allow_asked, compose_asked, validate
from r3l.config.preset_diff import between
from r3l.config.section import Section, stages_of
from r3l.errors import ConfigError, StoreError
from r3l.pipeline.logs import log
from r3l.records import Event
from r3l.stages import STAGES
from r3l.store.layout import SETTINGS, iteration_folder, line_folder
from r3l.store.manifest import seal, unsealed
from r3l.store.policies.snapshots import latest_policy
from r3l.store.stage import Store
from r3l.system.nested import leaves

GUARDED = ("policy", "environment", "method")  # what a run is a run of
PARAMETERS = ("policy.adapter", "policy.lora_rank", "policy.lora_alpha", "policy.lora_targets")  # the optimiser's
PLACE = ("run", "branch", "iteration", "change", "store")  # where an iteration is, not how it is run


class Change(NamedTuple):
    """A setting that differs from what it was, by its dotted name."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}"


def compose_for_run(asked: Asked, training: bool = True) -> Config:
    """Compose the settings that are asked for on top of those that the run has, if it is there; of a new run, on top of
    the usual presets. Every command, flow and form goes by this.

    Args:
        training: an iteration goes on with the settings it was begun with, an evaluation with the run's newest.

    Raises:
        ConfigError: a preset or setting is unknown, or a value is out of bounds.
        StoreError: the settings of the run can't be read.
    """
    place = validate({name: asked.settings[name] for name in PLACE if name in asked.settings})
    allow_asked(asked)  # before the stored settings are read, which may name the same code
    try:
        store = Store.open(place.store.root, reading=True)
    except StoreError:
        return compose_asked(asked)  # no store yet, so no run; one that can't be made is refused when it is written to
    newest = newest_begun(store, place.run, place.branch, place.iteration if training else None)
    if newest is None:
        return compose_asked(asked)
    own = newest[1].model_dump(mode="json", exclude={"store", "iteration"})
    return compose_asked(asked, own | {"branch": place.branch})


def changes(before: Config, after: Config) -> list[Change]:
    """List the settings that differ; of a section of another kind, only the kind."""
    old, new = (config.model_dump(mode="json", exclude=set(PLACE)) for config in (before, after))
    for name in new:
        kinds = [part[name].get("kind") for part in (old, new) if isinstance(part[name], dict)]
        if len(set(kinds)) > 1:
            old[name], new[name] = {"kind": kinds[0]}, {"kind": kinds[1]}
    return [Change(*one) for one in between(leaves(old), leaves(new))]


def stages_of_setting(config: Config, name: str) -> tuple[str, ...]:
    """List the stages whose rows a setting has a part in, in their order. A policy's folder is known by its digest,
    which an update has as that of the starting policy."""
    if name == "policy.path":
        return ("updates",)
    section: Section = config
    first, *inner = name.split(".")
    if inner:
        section, first = getattr(config, first), inner[0]
    stages = stages_of(type(section), first)
    return tuple(stage for stage in STAGES if stages is None or stage in stages)


def check_changes(store: Store, config: Config, iteration: int, training: bool = True) -> list[Change]:
    """List the settings that differ from what the run had so far.

    Raises:
        ConfigError: the run would go on with another policy, environment or method, and `config.change` does not allow
            it; or with weights and an optimiser's state that are none of this policy. An evaluation may be of any
            environment, but not of another policy.
        StoreError: the settings of the run can't be read.
    """
    newest = newest_begun(store, config.run, config.branch, iteration if training else None)
    if newest is None:
        return []
    number, before = newest
    all_changes = changes(before, config)
    if training:
        guarded_changes = [
            one for one in all_changes if one.name.partition(".")[0] in GUARDED and stages_of_setting(config, one.name)
        ]
    else:
        guarded_changes = [one for one in all_changes if one.name == "policy.path"]
    whose = f"run {config.run}{config.branch and ' branch '}{config.branch}: iteration {number} had"
    change_text = "; ".join(f"{one.name}={one.before}, now {one.after}" for one in guarded_changes)
    if guarded_changes and not training:
        raise ConfigError(
            f"{whose} {change_text}: an evaluation plays the run's own policy; give another one's evaluation a run of "
            "its own"
        )
    if guarded_changes and not config.change:
        raise ConfigError(
            f"{whose} {change_text}; leave that out to go on as before, give another run's name, or allow the change "
            "(--change; change=true in a form or in Python), which becomes a row of events"
        )
    lost_parameters = [one for one in guarded_changes if one.name in PARAMETERS]
    if lost_parameters and latest_policy(store, config.run, config.branch, iteration):
        raise ConfigError(
            f"{whose} {'; '.join(f'{one.name}={one.before}, now {one.after}' for one in lost_parameters)}: its "
            "weights and the "
            "optimiser's state are of other parameters, so not even --change can go on from them; start another run"
        )
    return all_changes


def keep_settings(store: Store, config: Config, iteration: int, replaying: bool = False) -> list[Change]:
    """Write the settings of an iteration; log and list what differs from those that the run had so far. Raise as
    `check_changes` does; a replay, which has a branch of its own, may differ in everything."""
    all_changes = [] if replaying else check_changes(store, config, iteration)
    for change in all_changes:
        log().info("from iteration %d on, %s", iteration, change)
    save_config(store, config, iteration)
    return all_changes


def change_events(store: Store, config: Config, iteration: int, stage: str) -> list[Event]:
    """Make an event for each setting that differs from those of the iteration before and of which `stage` is the first
    that goes by it: so it is stored with the first rows that differ."""
    newest = newest_begun(store, config.run, config.branch, iteration - 1) if iteration > 0 else None
    if newest is None:
        return []
    number, before = newest
    return [
        Event(
            iteration,
            stage,
            one.name,
            "setting_changed",
            f"{one.before} → {one.after}",
            f"the settings of iteration {number} were the last before",
        )
        for one in changes(before, config)
        if stages_of_setting(config, one.name)[:1] == (stage,)
    ]


def save_config(store: Store, config: Config, iteration: int) -> None:
    """Write the settings under the iteration's lock, before its first stage."""
    content = seal(config.model_dump(mode="json", exclude={"change"}))  # the next change is to be allowed anew
    store.files.put(_path(config.run, config.branch, iteration), content)


def load_config(store: Store, run: str, branch: str, iteration: int) -> Config:
    """Load the settings of an iteration. Raise `StoreError` where the iteration was never begun."""
    content = store.files.read(_path(run, branch, iteration))
    if content is None:
        raise StoreError(
            f"run {run}{f' branch {branch}' if branch else ''}: no iteration {iteration} in {store.root}; see `r3l "
            "runs`"
        )
    return as_config(content, _path(run, branch, iteration))


def newest_begun(store: Store, run: str, branch: str = "", last: int | None = None) -> tuple[int, Config] | None:
    """Find the newest iteration that was begun (up to `last`), and its settings; of a branch that has none, those of
    the run. None: there is none.

    Raises:
        StoreError: the settings can't be read.
    """
    for line in dict.fromkeys((branch, "")):
        names = (name.removeprefix("iteration=") for name in store.files.folders(line_folder(run, line)))
        numbers = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
        for number in numbers:
            if (last is None or number <= last) and store.files.read(_path(run, line, number)) is not None:
                return number, load_config(store, run, line, number)
    return None


def as_config(content: bytes, path: str) -> Config:
    """Parse settings as they were stored.

    Raises:
        StoreError: they are damaged, or have a setting that this version does not know.
    """
    settings = unsealed(content, path)
    try:
        return Config.model_validate(settings)
    except (ValidationError, ValueError, AttributeError, TypeError) as error:
        what = complaint(dict(error.errors()[0])) if isinstance(error, ValidationError) else str(error)
        raise StoreError(
            f"{path}: these settings can't be read here ({what}); its tables can still be queried"
        ) from error


def _path(run: str, branch: str, iteration: int) -> str:
    return f"{iteration_folder(run, branch, iteration)}/{SETTINGS}"
