"""Checks before any work starts. Each error names the value and the fix. Nothing is written, but that `ready` has the
starting policy made."""

import sys
from collections.abc import Iterator
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from r3l import plugins
from r3l.config import Config
from r3l.config.engines import TransformersLocalSettings, VllmServerSettings
from r3l.config.methods.shared import GuidedSettings
from r3l.engines import maker
from r3l.engines.base import PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.engines.model_folder import adapter_config, check_context, check_targets, check_variant
from r3l.engines.vllm.own_process import interpreter
from r3l.environments.base import Packaged, shown_by, tools_of
from r3l.environments.kinds import ENVIRONMENTS, make_world, tasks_of
from r3l.errors import ConfigError
from r3l.evaluation.play import evaluated_tasks
from r3l.methods import METHODS, plan
from r3l.pipeline import policies
from r3l.pipeline.evaluation import evaluated_iteration
from r3l.pipeline.iteration import the_iteration
from r3l.pipeline.logs import log
from r3l.pipeline.making import ensure_policy
from r3l.pipeline.settings.continuing import check_changes
from r3l.pipeline.stages.task_batch import enough
from r3l.pipeline.teaching import check_guidance
from r3l.store.stage import Store
from r3l.system.machine import is_slow_in_bfloat16
from r3l.system.packages import install_command

GPUS = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")  # NVIDIA's, AMD's, those of WSL


def ready(config: Config, training: bool = True) -> Store:
    """Have the starting policy made or fetched where it is not there, then return what `check` does. What can be wrong
    without a policy is found before that takes its time.

    Raises:
        R3LError: as of `check`, and of `ensure_policy`.
    """
    check_settings(config, training)
    warn_of_bfloat16(config, training)
    ensure_policy(config)
    return check(config, training)


def check(config: Config, training: bool = True) -> Store:
    """Check whether the run can start; the result is the opened store. An evaluation needs no training tasks: its
    benchmark may have none.

    Raises:
        StoreError: the store is not writable, or what the run would go on from is not what its update wrote.
        ConfigError: packages that are not installed, a change that makes it another run, a plug-in that can't be used,
            no policy, no such iteration, too few tasks, a limit that leaves no room for a reply, no GPU for the update.
        ChatFormatError: no tokenizer, or a chat template that can't be extended turn by turn.
        WorldError: the environment's data or packages are missing.
    """
    check_settings(config, training)
    store = Store.open(config.store.root)
    iteration = the_iteration(config, store) if training else evaluated_iteration(config, store) + 1
    check_changes(store, config, iteration, training)
    snapshots = policies.find(config, store, iteration)
    with plugins.blaming("environment", config.environment.kind, ENVIRONMENTS):
        world = make_world(config.environment)
        tools, _ = tools_of(world), shown_by(world)
    ChatFormat.load(snapshots.start.model_path, config.policy.thinking, tools, light=True)
    check_adapter(config, snapshots.start, training)
    check_servers(config, Path(snapshots.start.model_path))
    if config.environment.reply_tokens >= config.policy.context_tokens:
        raise ConfigError(
            f"environment.reply_tokens={config.environment.reply_tokens} leaves no room in "
            f"policy.context_tokens={config.policy.context_tokens}; make the reply shorter or the context longer"
        )
    if training:
        check_guidance(config)
        check_waves(config)
        policies.check_optimiser(store, snapshots)
    with plugins.blaming("environment", config.environment.kind, ENVIRONMENTS):
        if training:
            enough(config, len(tasks_of(config.environment, config.environment.split)))
        else:
            evaluated_tasks(config, iteration - 1)
    return store


def check_settings(config: Config, training: bool) -> None:
    """Raise `ConfigError` for an engine or method that can't be used, packages that are not installed, an overlap that
    can't be, or no GPU for the update."""
    if training:
        check_gpu(config)
        check_overlap(config)
    maker(config.engine)
    check_packages(config, training)
    with plugins.blaming("method", config.method.kind, METHODS):
        plan(config.method, config.rollout.group_size)


def warn_of_bfloat16(config: Config, training: bool) -> None:
    """Say where this processor computes in bfloat16 and is slow in it: on one with AVX2 alone SmolLM2's prompts take 6
    times the processor time that they take in float32, replies 2.3 times, and an update 12 times."""
    samples = isinstance(config.engine, TransformersLocalSettings) and config.policy.dtype == "bfloat16"
    here = training and not config.placement.update_deployment
    updates = here and config.training.dtype == "bfloat16" and (config.training.device == "cpu" or not has_gpu())
    if (samples or updates) and is_slow_in_bfloat16():
        names = [name for name, used in (("policy", samples), ("training", updates)) if used]
        log().warning(
            "this processor has no instructions for bfloat16, and takes many times as long in it as in float32; for a "
            "run from its start: %s",
            " ".join(f"--set {name}.dtype=float32" for name in names),
        )


def has_gpu() -> bool:
    return any(glob(place) for place in GPUS)


def check_gpu(config: Config) -> None:
    """Raise `ConfigError` where the update of this host asks for a GPU and there is none: it would say so only after
    everything is sampled."""
    here = not config.placement.update_deployment and sys.platform == "linux"
    if here and config.training.device == "cuda" and not has_gpu():
        raise ConfigError(
            f"training.device=cuda, and this machine has no GPU ({', '.join(GPUS)}); run on one that has, or set "
            "training.device=auto for an update on the CPU"
        )


def check_overlap(config: Config) -> None:
    """Raise `ConfigError` where an iteration can't be sampled beside the update before: the engine sleeps meanwhile, or
    what teaches it is only written then."""
    if not config.training.overlap:
        return
    if isinstance(config.engine, VllmServerSettings) and config.engine.sleep:
        raise ConfigError(
            f"training.overlap=true samples while the update runs, and engine.sleep={config.engine.sleep} has the "
            "servers sleep then: set engine.sleep=0 and give the update a GPU of its own, or training.overlap=false"
        )
    if isinstance(config.method, GuidedSettings) and config.method.teacher_every:
        raise ConfigError(
            f"training.overlap=true samples before the update that writes the teacher of "
            f"method.teacher_every={config.method.teacher_every}: set method.teacher_every=0, or training.overlap=false"
        )


def check_adapter(config: Config, start: PolicySnapshot, training: bool = True) -> None:
    """Raise `ConfigError` where the settings are not those of the adapter that the run starts from, or where it would
    be sampled or trained on other hosts: those fetch one folder. Or where it adapts what can't be adapted."""
    targets = adapter_config(Path(start.path)).get("target_modules") if start.base_path else config.policy.lora_targets
    if training and config.policy.adapter == "lora" and targets != "all-linear":
        names = [name.strip() for name in targets.split(",")] if isinstance(targets, str) else targets or []
        check_targets(Path(start.model_path), names)
    if not start.base_path:
        return
    if "bfloat16" in (config.policy.dtype, config.training.dtype):
        check_variant(Path(start.path))
    policy, rank = config.policy, adapter_config(Path(start.path)).get("r")
    remedy = "set policy.path to a folder that it is merged into (NAME for NAME-adapter is made on first use)"
    if rank != policy.lora_rank or (training and policy.adapter != "lora"):
        raise ConfigError(
            f"policy folder {start.path} is an adapter of rank {rank}; got policy.adapter={policy.adapter}, "
            f"policy.lora_rank={policy.lora_rank}; set policy.adapter=lora and policy.lora_rank={rank}, or {remedy}"
        )
    if config.placement.shards != "here" or config.placement.update_deployment:
        raise ConfigError(f"policy folder {start.path} is an adapter, which other hosts can't start from: {remedy}")


def check_waves(config: Config) -> None:
    """Raise `ConfigError` where new tasks would have to be played on other hosts: those play the shards of the
    batch."""
    if config.placement.shards != "here" and plan(config.method, config.rollout.group_size).resample_rounds:
        raise ConfigError(
            "method.resample_rounds samples new tasks on this host alone, and "
            f"placement.shards={config.placement.shards} "
            "samples on others: set method.resample_rounds=0, or placement.shards=here"
        )


def check_servers(config: Config, policy: Path) -> None:
    """Check whether vLLM can serve the policy.

    Raises:
        ConfigError: a context that the model was not made for, or own servers where other hosts sample.
        EngineError: there is no vLLM to start.
    """
    engine = config.engine
    if not isinstance(engine, VllmServerSettings):
        return
    check_context(policy, config.policy.context_tokens)
    if engine.gpus and config.placement.shards != "here":
        raise ConfigError(
            f"engine.gpus={engine.gpus} starts servers that only this host reaches, and placement.shards="
            f"{config.placement.shards} samples on others: start servers with infra/engine/serve.sh and set engine.urls"
        )
    if engine.gpus:
        interpreter()


class Need(NamedTuple):
    """Packages, the setting that asks for them, and what installs them: an extra, else the packages themselves."""

    setting: str
    packages: tuple[str, ...]
    extra: str = ""


def check_packages(config: Config, training: bool = True) -> None:
    """Raise `ConfigError` with one command that installs what is missing: a worker or the update would end of it only
    when the stages before it are stored."""
    absent = {need: [name for name in need.packages if not is_installed(name)] for need in needs(config, training)}
    lacking = {need: names for need, names in absent.items() if names}
    if not lacking:
        return
    extras = sorted({need.extra for need in lacking if need.extra})
    others = [name for need, names in lacking.items() if not need.extra for name in names]
    reasons = "; ".join(f"{need.setting} needs {', '.join(names)}" for need, names in lacking.items())
    raise ConfigError(f"{reasons}: {install_command(extras, others)}")


def needs(config: Config, training: bool) -> Iterator[Need]:
    """Name what is imported here. Hosts that shards or updates are placed on look for themselves."""
    here = config.placement.shards == "here"
    if here:
        kind = config.environment.kind
        with plugins.blaming("environment", kind, ENVIRONMENTS):
            world = make_world(config.environment)
        if isinstance(world, Packaged):
            yield Need(f"environment.kind={kind}", world.packages, kind if kind in ENVIRONMENTS else "")
    if here and config.engine.kind == "transformers_local":
        grammar_packages = ("llguidance",) if config.rollout.structured_reflections else ()
        yield Need(f"engine.kind={config.engine.kind}", ("torch", "transformers"), "trainer")
        yield Need("rollout.structured_reflections=true", grammar_packages, "structured")
    if training and not config.placement.update_deployment:
        yield Need("the update", ("torch", "transformers", "peft"), "trainer")


def is_installed(package: str) -> bool:
    """Look for a package without importing it, which could take seconds."""
    try:
        return package in sys.modules or find_spec(package) is not None
    except ImportError:
        return False
