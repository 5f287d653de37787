"""An iteration's plan: figures, each with what it was worked out from. Nothing is measured here."""

from collections.abc import Iterator
from dataclasses import dataclass

from r3l.config import Config
from r3l.config.machines import Machine
from r3l.errors import StoreError
from r3l.planning.memory import (
    ASLEEP_BYTES,
    GPU_MEMORY_GB,
    RESERVE,
    WIDTHS,
    engine_cache_tokens,
    saved_bytes,
    training_memory,
)
from r3l.planning.shapes import Shape, shape_of
from r3l.store.catalog import connect
from r3l.store.stage import Store

COUNTS = """
SELECT count(DISTINCT (iteration, task)),
       sum(turns) FILTER (kind = 'base') + sum(turns - coalesce(pivot_turn, 0)) FILTER (kind IN ('retry',
       'continuation')),
       sum(response_tokens) FILTER (kind IN ('base', 'retry', 'continuation')),
       sum(response_tokens) FILTER (kind IN ('base', 'retry', 'continuation', 'distilled'))
FROM trajectories WHERE run = ? AND branch = '' AND iteration >= 0 AND kind <> 'evaluation'
"""
PASSES = """
SELECT avg(passes) FROM (SELECT max(epoch) + 1 AS passes FROM updates WHERE run = ? AND branch = '' GROUP BY iteration)
"""
SPENT = """
SELECT stage, sum(seconds), sum(bytes) FROM stages
WHERE run = ? AND branch = '' AND iteration >= 0 AND stage <> 'evaluations' GROUP BY stage ORDER BY min(committed_at)
"""


@dataclass(frozen=True)
class ObservedRun:
    """Sums over all iterations of a run, its evaluations left out."""

    run: str
    tasks: int
    turns: int  # played: those of bases, and those of retries and continuations from the pivot on
    sampled: int  # tokens of bases, retries and continuations
    trained: int  # the same and distilled ones: what the tables hold
    bytes: int
    seconds: dict[str, float]  # stage -> summed over shards
    epochs: float = 1.0  # passes of an update over its batch


def observe_run(store: Store, run: str) -> ObservedRun:
    """Sum up what a run has cost. Raise `StoreError` where it has no finished rollouts."""
    with connect(store, [run], question=COUNTS + PASSES + SPENT) as connection:
        row = connection.execute(COUNTS, [run]).fetchone()
        passes = connection.execute(PASSES, [run]).fetchone()
        stage_rows = connection.execute(SPENT, [run]).fetchall()
    if row is None or not row[0]:
        raise StoreError(f"run {run}: no rollouts in {store.root} to plan from; see `r3l runs`")
    tasks, turns, sampled_tokens, trained_tokens = (int(value or 0) for value in row)
    return ObservedRun(
        run,
        tasks,
        turns,
        sampled_tokens,
        trained_tokens,
        sum(int(size) for _, _, size in stage_rows),
        {stage: float(seconds or 0) for stage, seconds, _ in stage_rows},
        (passes and passes[0]) or 1.0,
    )


GB = 1e9


@dataclass(frozen=True)
class Figure:
    section: str  # memory, tokens, time or storage
    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class ResourcePlan:
    figures: list[Figure]
    assumptions: list[str]
    troubles: list[str]  # what will not fit

    def value(self, name: str) -> float:
        return next(figure.value for figure in self.figures if figure.name == name)


def make_plan(config: Config, machine: Machine, observed: ObservedRun | None = None) -> ResourcePlan:
    """Work out what one iteration of `config` needs on `machine`. Tokens, time and the size of the tables are
    those of a run that was `observed`.

    Raises:
        ConfigError: the policy's shape is not known.
    """
    shape = shape_of(config.policy)
    memory, troubles = _memory(config, shape, machine)
    spent = [*_tokens(config, observed), *_time(config, observed)] if observed else []
    return ResourcePlan([*memory, *spent, *_storage(config, shape, observed)], _assumptions(observed), troubles)


def _memory(config: Config, shape: Shape, machine: Machine) -> tuple[list[Figure], list[str]]:
    gpu_gb, training = GPU_MEMORY_GB[machine.gpu], training_memory(config, shape, machine.training_gpus)
    cache = engine_cache_tokens(config, shape, gpu_gb)
    asleep = ASLEEP_BYTES if machine.shared else 0.0
    how = f"{config.training.sharding}, {machine.training_gpus} processes, {config.training.dtype}"
    figures = [
        Figure("memory", "parameters", shape.parameters, "", "counted from the model's shape"),
        Figure("memory", "training GPU: weights and optimiser", training.weights / GB, "GB", how),
        Figure(
            "memory",
            "training GPU: activations of one path",
            training.activations / GB,
            "GB",
            f"{config.policy.context_tokens} tokens, the longest "
            f"path{', recomputed' if config.training.checkpoint_segments else ''}",
        ),
        Figure(
            "memory",
            "training GPU: a chunk of logits",
            training.logits / GB,
            "GB",
            f"{config.training.logits_chunk} positions",
        ),
        *_asleep(config, shape, asleep),
        Figure("memory", "training GPU: in all", (training.gpu + asleep) / GB, "GB", f"a {machine.gpu} has {gpu_gb:g}"),
        Figure(
            "memory",
            "training host: while it loads or saves",
            training.host / GB,
            "GB",
            "each process reads the whole model, the first one gathers what is saved",
        ),
        Figure(
            "memory", "sampling GPU: tokens in its cache", cache, "tokens", f"{RESERVE:.0%} of the GPU less the weights"
        ),
        Figure(
            "memory",
            "sampling GPU: longest contexts at once",
            cache / config.policy.context_tokens,
            "",
            f"of {config.policy.context_tokens} tokens",
        ),
    ]
    return figures, list(_memory_troubles(config, machine, training.gpu + asleep, cache))


def _asleep(config: Config, shape: Shape, bytes_: float) -> Iterator[Figure]:
    """Yield what the sleeping server keeps during the update, where both share a GPU."""
    if bytes_:
        yield Figure("memory", "training GPU: vLLM asleep", bytes_ / GB, "GB", "taken: its context and captured graphs")
    if bytes_ and getattr(config.engine, "sleep", 0) == 1:
        weights = shape.parameters * WIDTHS[config.policy.dtype] / GB
        yield Figure(
            "memory", "host: weights of vLLM asleep", weights, "GB", "engine.sleep=1; 2 reads them again instead"
        )


def _memory_troubles(config: Config, machine: Machine, training_bytes: float, cache_tokens: float) -> Iterator[str]:
    """Yield what does not fit, each with what would make it fit."""
    gpu_gb = GPU_MEMORY_GB[machine.gpu]
    if training_bytes > RESERVE * gpu_gb * GB:
        yield (
            f"the update needs {training_bytes / GB:.0f} GB a GPU and a {machine.gpu} has {gpu_gb:g}: more "
            "processes with training.sharding=fsdp2, training.checkpoint_segments=true, a shorter "
            "policy.context_tokens, or an adapter"
        )
    if cache_tokens < config.policy.context_tokens:
        yield (
            f"a {machine.gpu} has no room for one context of {config.policy.context_tokens} tokens beside the weights"
        )


def _tokens(config: Config, observed: ObservedRun) -> Iterator[Figure]:
    sums = {"turns": observed.turns, "sampled tokens": observed.sampled, "response tokens": observed.trained}
    for name, count in sums.items():
        unit = "" if name == "turns" else "tokens"
        source = f"run {observed.run}: {observed.tasks} tasks measured"
        yield Figure("tokens", name, count * config.rollout.tasks / observed.tasks, unit, source)


def _time(config: Config, observed: ObservedRun) -> list[Figure]:
    source = f"run {observed.run}, where it ran"
    spent = {name: seconds * config.rollout.tasks / observed.tasks for name, seconds in observed.seconds.items()}
    if "updates" in spent:  # every epoch is a pass over the batch; minibatches share one
        spent["updates"] *= config.training.epochs / observed.epochs
    figures = [Figure("time", name, seconds, "s", source) for name, seconds in spent.items()]
    how = "stages and shards one after another; side by side: less"
    return [*figures, Figure("time", "iteration", sum(spent.values()), "s", how)]


def _storage(config: Config, shape: Shape, observed: ObservedRun | None) -> Iterator[Figure]:
    tables = observed.bytes * config.rollout.tasks / observed.tasks if observed else 0.0
    if observed:
        yield Figure("storage", "tables", tables / GB, "GB", f"run {observed.run}: {observed.tasks} tasks measured")
    trained = shape.adapter_parameters(config.policy.lora_rank) if config.policy.adapter == "lora" else shape.parameters
    saved = saved_bytes(config) * trained
    yield Figure("storage", "policy and optimiser", saved / GB, "GB", f"{saved_bytes(config):g} bytes a trained weight")
    if observed:
        yield Figure("storage", "in all", (tables + saved) / GB, "GB", "for an iteration")


def _assumptions(observed: ObservedRun | None) -> list[str]:
    return [
        "memory: activations without fragmentation; one path of policy.context_tokens, the longest there can be",
        "storage: every iteration's policy and optimiser are kept until they are pruned",
        f"tokens: as run {observed.run} had them for a task; another policy, world, method or N has others"
        if observed
        else "tokens, time and the tables' size: not known before a run; --like RUN takes those of one, however short",
    ]
