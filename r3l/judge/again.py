"""Make the stages of an iteration again, and tell where what is stored does not follow."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from r3l.judge.bench import Bench, Looking, Tell
from r3l.judge.compare import OF_THE_CODE, columns_to_compare, difference, settings_differences
from r3l.judge.lines import Lines, Place, key_of_manifest
from r3l.judge.witness import Made, NotStored
from r3l.pipeline.policies import imported_from
from r3l.pipeline.stages import calls, replay_buffer
from r3l.pipeline.stages.calls import CALLS
from r3l.pipeline.stages.shards import Chain, shards_of_batch, submit, waves
from r3l.pipeline.stages.task_batch import shards_of
from r3l.pipeline.tools import Tools
from r3l.records import Status
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.layout import StageKey, StageRef
from r3l.store.manifest import Manifest
from r3l.store.stage import Store
from r3l.store.tables.schemas import INCIDENTS
from r3l.store.tables.unstorable import ATTEMPTS
from r3l.store.tables.versions import lacking


def stages_again(lines: Lines, place: Place, tools: Tools, found: Tell, passed_over: Tell) -> Bench | None:
    """Make an iteration's stages again but for its update, and compare each with what is stored. Return the bench on
    which they were made; None where the iteration's settings are not stored."""
    config = lines.config(place.branch, place.iteration)
    if config is None:
        for one in place.manifests:
            passed_over(key_of_manifest(one), "the settings of its iteration are not stored")
        return None
    package = imported_from(config)
    of_ours = any(one["settings"] or one["stage"] == "updates" for one in place.manifests)
    if package and not of_ours:
        for one in place.manifests:
            passed_over(key_of_manifest(one), f"its rows are {package}'s, whose settings are not told")
        return None
    policies = lines.policies(place, config)
    looking = Looking(found, passed_over)
    bench = Bench(config, lines.store, place.iteration, policies, place.replay, looking, tools)
    chain_again(bench, found)
    manifest_of = {key_of_manifest(one): one for one in place.manifests}
    for key, remade in bench.made.items():
        if key in manifest_of:
            hold_against(bench.store, manifest_of[key], remade, bench, found, passed_over)
    keys_seen = {*bench.made, *looking.missed}
    whole = any(one["stage"] == "updates" for one in place.manifests)
    for key in manifest_of if whole and place.replay.from_stage == "tasks" else ():
        if key not in keys_seen and STAGES[key.stage].sharded:
            found(key, "its iteration's settings lead to no such stage")
    return bench


def chain_again(bench: Bench, found: Tell) -> list[StageRef]:
    """Let the stages follow one another as in `r3l.pipeline.iteration`, up to the first that is not stored. The result
    are those that an update reads."""
    try:
        batch: StageRef = bench.runner.call(calls.draw_tasks, bench)
    except NotStored:
        return []
    rollout = bench.config.rollout
    refs = shards_again(bench, batch, range(shards_of(rollout.tasks, rollout.tasks_per_shard)))
    for wave in waves(bench):
        credit = [ref for ref in refs if ref.stage == "credit"]
        # dynamic sampling: how many tasks a further wave had follows from what counted before it
        missing = rollout.tasks - calls.count_credit(bench, credit)
        if missing <= 0:
            break
        try:
            batch = bench.runner.call(calls.draw_tasks, bench, wave, missing, credit)
        except NotStored:
            return refs
        refs += shards_again(bench, batch, shards_of_batch(bench, batch))
    if replay_buffer.active(bench):
        credit, rows = ([ref for ref in refs if ref.stage == stage] for stage in ("credit", "training_rows"))
        with suppress(NotStored):
            refs.append(bench.runner.call(calls.replay_groups, bench, credit, rows))
    return refs


def shards_again(bench: Bench, batch: StageRef, shards: Sequence[int]) -> list[StageRef]:
    refs: list[StageRef] = []
    for shard in shards:
        chain: Chain = {stage: [] for stage in CALLS}
        with suppress(NotStored):  # not made yet: the iteration is under way, or was replayed so far only
            submit(bench, batch, shard, chain)
        refs += [future.result() for futures in chain.values() for future in futures]
    return refs


def hold_against(store: Store, stored: Manifest, made: Made, bench: Bench, found: Tell, passed_over: Tell) -> None:
    """Compare one stage with what follows from its parents and settings."""
    key = key_of_manifest(stored)
    others = list(settings_differences(stored["settings"], made.settings))
    versions = [name for name, _ in others if name in OF_THE_CODE]
    for name, what in others:
        if name not in OF_THE_CODE:
            found(key, f"its settings are not those of its iteration: {name}: {what}")
    if stored["policy"] != made.policy:
        found(key, f"policy {stored['policy'] or 'none'}, its iteration worked with {made.policy or 'none'}")
    if stored["seed"] != made.seed:
        found(key, f"seed {stored['seed']}, its iteration has {made.seed}")
    own, parents = [one["fingerprint"] for one in stored["parents"]], [ref.fingerprint for ref in made.parents]
    if own != parents:
        found(key, "its parents are not the stages that it follows")
    # rows of other code may differ rightly: they are passed over, and said to be
    if versions:
        passed_over(key, f"made under other {', '.join(versions)} than the present")
        return
    rows_again(store, key, stored, made.tables, found)


def rows_again(store: Store, key: StageKey, stored: Manifest, made: Mapping[str, pa.Table], found: Tell) -> None:
    """Compare the tables of a stage with those that were made again."""
    ref = manifests.reference(stored)
    broken_ids = broken_by_the_world(store, ref)
    for table, again in made.items():
        rows, again = (one.filter(told_again(one, broken_ids)) for one in (store.read(ref, table), again))
        columns = columns_to_compare(table, lacking(table, stored["schema_version"]))
        if what := difference(table, rows, again, columns):
            found(key, what)


def broken_by_the_world(store: Store, ref: StageRef) -> set[str]:
    """Find the attempts that the world broke: played again, it may not break."""
    tables = [table for table in STAGES[ref.stage].tables if table in ("trajectories", "reflections")]
    attempt_ids: set[str] = set()
    for table in tables if STAGES[ref.stage].plays or STAGES[ref.stage].samples else ():
        name = ATTEMPTS[table]
        rows = store.read(ref, table, [name, "status"]).to_pylist()
        attempt_ids |= {row[name] for row in rows if row["status"] == Status.ENVIRONMENT_ERROR}
    return attempt_ids


def told_again(rows: pa.Table, broken: set[str]) -> pa.Array:
    """Mark which rows are compared: not those of broken attempts, nor events that tell of the machine."""
    names = [name for name in ("trajectory_id", "reflection_id", "subject_id") if name in rows.column_names][:1]
    ids = rows[names[0]].to_pylist() if names else [""] * rows.num_rows
    events = rows["event"].to_pylist() if "event" in rows.column_names else [""] * rows.num_rows
    is_compared = [id_ not in broken and event not in INCIDENTS for id_, event in zip(ids, events, strict=True)]
    return pa.array(is_compared, pa.bool_())
