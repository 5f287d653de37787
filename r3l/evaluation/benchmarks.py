"""The benchmarks by name: which environment, which split, how many tasks, in which formats and protocols."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from r3l.config import Config
from r3l.config.compose import assign, merge, validate
from r3l.config.environments import ENVIRONMENT_KINDS, AnyEnvironment, EnvironmentSettings
from r3l.environments.base import Benchmark
from r3l.environments.kinds import ENVIRONMENTS, world_class
from r3l.errors import ConfigError

KEPT = ("workers", "step_timeout_s", "episode_s", "data_root")  # settings of the machine, whatever world is asked for


BENCHMARKS: dict[str, Benchmark] = {  # of the worlds that ship
    name: replace(benchmark, environment={"kind": kind, **benchmark.environment})
    for kind in ENVIRONMENTS
    for name, benchmark in getattr(world_class(kind), "benchmarks", {}).items()
}


@dataclass(frozen=True, slots=True)
class Posed:
    """A benchmark as a config plays it; the other fields are columns of `evaluations`."""

    config: Config
    benchmark: str
    format: str
    protocol: str


def pose(config: Config) -> Posed:
    """Make what `config` asks to be evaluated on: a benchmark, or its own environment on a split of it.

    Raises:
        ConfigError: an unknown benchmark, or attempts or an answer format that it does not have, or without one.
    """
    settings = config.evaluation
    if settings.benchmark:
        return pose_benchmark(config, settings.benchmark, settings.answer_format, settings.attempts)
    if settings.attempts != 1 or settings.answer_format:
        raise ConfigError(
            "evaluation.attempts and evaluation.answer_format apply to benchmarks of problems alone: name one in "
            f"evaluation.benchmark ({', '.join(name for name, one in BENCHMARKS.items() if one.attempts)})"
        )
    return Posed(
        config,
        f"{config.environment.kind}/{settings.split}",
        getattr(config.environment, "answer_format", ""),
        "single",
    )


def with_environment(config: Config, assignments: Sequence[str]) -> Config:
    """Give `config` the environment of the benchmark that it names, and ``environment.key=value`` on top of that.

    Raises:
        ConfigError: an unknown setting of that environment, or one that makes the benchmark what it is.
    """
    name = config.evaluation.benchmark
    below = pose(config).config.model_dump(mode="json")
    settings = assign(below, assignments)
    for key, value in benchmark_named(name).environment.items():
        if settings["environment"].get(key) != value:
            raise ConfigError(
                f"environment.{key}={settings['environment'].get(key)}: benchmark {name} has {key}={value}; leave it "
                "out, or evaluate on another benchmark"
            )
    return validate(settings)


def benchmark_named(name: str) -> Benchmark:
    """Find a benchmark by its name; ``KIND/NAME`` is one that the plug-in KIND has. Raise `ConfigError` for an unknown
    one."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    kind, slash, own = name.partition("/")
    if not slash:
        raise ConfigError(
            f"unknown benchmark {name!r}: expected one of {', '.join(BENCHMARKS)}, or KIND/NAME of a plug-in"
        )
    theirs: dict[str, Benchmark] = getattr(world_class(kind), "benchmarks", {})
    if own not in theirs:
        raise ConfigError(f"unknown benchmark {name!r}: {kind} has {', '.join(theirs) or 'none'}")
    return replace(theirs[own], environment=theirs[own].environment | {"kind": kind})


def pose_benchmark(config: Config, name: str, answer_format: str = "", attempts: int = 1) -> Posed:
    """Give `config` the environment and the split of a benchmark. Where the environment is of the same kind and level
    its other settings stay (of a kind derived from it, those that both have); else only `KEPT` do, and replies take at
    most half of the policy's context.
    `evaluation.tasks` is left alone, but never above what there is.

    Raises:
        ConfigError: an unknown benchmark, or a format or protocol that it does not have.
    """
    benchmark = benchmark_named(name)
    format_name = answer_format or benchmark.formats[0]
    if format_name not in benchmark.formats:
        format_names = " or ".join(filter(None, benchmark.formats)) or "none"
        raise ConfigError(f"benchmark {name} has no answer format {format_name!r}: expected {format_names}")
    if attempts != 1 and not benchmark.attempts:
        raise ConfigError(f"benchmark {name} is played once: attempts={attempts} is for problems")
    overrides = dict(benchmark.environment)
    if benchmark.attempts:
        overrides |= {"max_turns": attempts, "answer_format": format_name}
    return Posed(
        reconfigure(config, overrides, benchmark),
        name,
        format_name,
        "single" if attempts == 1 else f"attempts={attempts}",
    )


def reconfigure(config: Config, overrides: dict[str, Any], benchmark: Benchmark) -> Config:
    settings = config.model_dump(mode="json")
    below = settings.pop("environment")
    # of its own kind, or of a world derived from it
    if common_settings := ENVIRONMENT_KINDS.shared(overrides["kind"], below["kind"]):
        below = {name: value for name, value in below.items() if name in common_settings}
    if not common_settings or below.get("level") != overrides.get("level", below.get("level")):
        below = {key: below[key] for key in KEPT}  # another level has its own turns too
        usual: EnvironmentSettings = TypeAdapter(AnyEnvironment).validate_python(overrides)
        below["reply_tokens"] = min(usual.reply_tokens, config.policy.context_tokens // 2)
    settings["environment"] = merge(below | {"kind": overrides["kind"]}, overrides)
    settings["evaluation"] |= {
        "split": benchmark.split,
        "tasks": min(config.evaluation.tasks, benchmark.tasks or config.evaluation.tasks),
    }
    return validate(settings)
