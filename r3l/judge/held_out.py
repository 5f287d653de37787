"""Evaluations: played again with what was sampled, and their rows made again from their episodes."""

from dataclasses import replace
from typing import Any

from r3l.config import Config
from r3l.config.compose import merge, validate
from r3l.errors import ConfigError, R3LError, WorldError
from r3l.evaluation.benchmarks import Posed
from r3l.evaluation.play import evaluated_tasks, evaluation_columns, evaluation_rows, evaluation_stage
from r3l.judge.again import rows_again
from r3l.judge.bench import UNREADABLE, Bench, Looking, NotAtHand, Tell, in_words, recorded_of
from r3l.judge.compare import OF_THE_CODE
from r3l.judge.lines import Lines, Place, key_of_manifest
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.identity import stage_settings
from r3l.pipeline.tools import Tools
from r3l.store import manifest as manifests
from r3l.store.manifest import Manifest
from r3l.store.tables.schemas import IDENTITY_VERSIONS
from r3l.store.tables.unstorable import storable, whole

POSED = ("benchmark", "format", "protocol")


def evaluations_again(lines: Lines, place: Place, tools: Tools, found: Tell, passed_over: Tell) -> None:
    """Play the evaluations of an iteration's policy again, and compare."""
    for manifest in place.of("evaluations"):
        key = key_of_manifest(manifest)
        newest = lines.latest(place.branch, place.iteration + 1)
        policy_digest = newest.policy if newest else lines.start
        if policy_digest and manifest["policy"] != policy_digest:
            found(key, f"policy {manifest['policy']}, its iteration made {policy_digest}")
        config = posed_config(lines, place, manifest)
        if config is None or manifest["schema_version"] < IDENTITY_VERSIONS["evaluations"]:
            passed_over(key, "an older version, or no settings of its run are stored")
            continue
        present = stage_settings_of(config)
        if other := [name for name in OF_THE_CODE if present.get(name) != manifest["settings"].get(name)]:
            passed_over(key, f"made under other {', '.join(other)} than the present")
            continue
        try:
            tables = whole(key, played_again(lines, place, manifest, config, tools))
            remade = storable(key, tables)
        except (NotAtHand, WorldError) as error:
            passed_over(key, str(error))
            continue
        except UNREADABLE as error:
            found(key, f"can't be made again: {in_words(error)}")
            continue
        rows_again(lines.store, key, manifest, remade, found)


def stage_settings_of(config: Config) -> dict[str, Any]:
    try:
        return stage_settings(config, "evaluations")
    except R3LError:
        return {}


def posed_config(lines: Lines, place: Place, manifest: Manifest) -> Config | None:
    """Make the settings that the evaluation was played with: those of its manifest on the ones of its run."""
    base = lines.config(place.branch, place.iteration) or lines.config("", max(place.iteration, 0))
    if base is None or not manifest["settings"]:
        return None
    own = {name: value for name, value in manifest["settings"].items() if name in Config.model_fields}
    below = base.model_dump(mode="json")
    if own.get("environment", {}).get("kind") != below["environment"]["kind"]:
        below["environment"] = {"kind": own["environment"]["kind"]}
    try:
        return validate(merge(below, own))
    except (ConfigError, KeyError, TypeError):
        return None


def played_again(lines: Lines, place: Place, manifest: Manifest, config: Config, tools: Tools) -> stage_io.Tables:
    settings, policies = manifest["settings"], lines.policies(place, config)
    bench = Bench(config, lines.store, place.iteration, policies, place.replay, Looking(), tools)
    engine, _ = recorded_of(lines.store, [manifests.reference(manifest)], config)
    explorer = replace(bench.explorer, engine=engine, policy=manifest["policy"])
    tasks, of_tasks = evaluated_tasks(config, place.iteration)
    benchmark = Posed(config, *(str(settings[name]) for name in POSED))
    about = evaluation_columns(benchmark, settings, len(tasks), of_tasks)
    name = f"evaluation-{about['evaluation']}"
    evaluation = config.evaluation
    episodes = evaluation_stage(explorer, tasks, evaluation.repeats, evaluation.temperature, name=name)
    return {"evaluations": evaluation_rows(episodes, about)} | stage_io.tables(episodes)
