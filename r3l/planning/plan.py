"""An iteration's plan: figures, each with what it was worked out from. Nothing is measured here."""

from collections.abc import Iterator
from dataclasses import dataclass

from r3l.config import Config
from r3l.config.machines import Machine
from r3l.planning.gpus import GPUS
from r3l.planning.memory import ASLEEP_BYTES, RESERVE, WIDTHS, engine_cache_tokens, saved_bytes, training_memory
from r3l.planning.observed import ObservedRun
from r3l.planning.paper_costs import ENGINE_GPUS, GPU, GROUP, TASKS, TRAINING_GPUS, CostRow, row_for
from r3l.planning.shapes import PAPER, Shape, shape_of

# Of all tables, for each response token of base, retry and distilled trajectories (data/LOG.md, "The plan").
TABLE_BYTES = 12.0
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
    """Plan what one iteration of `config` needs on `machine`.

    Args:
        observed: figures of a run in the store; they replace the paper's for tokens, and for time where the run was on
            this machine.

    Raises:
        ConfigError: the policy's shape is not known.
    """
    shape = shape_of(config.policy)
    row = row_for(config, shape.parameters, {name: one.parameters for name, one in PAPER.items()})
    memory, troubles = _memory(config, shape, machine)
    tokens = _tokens(config, row, observed)
    tokens_in_tables = next(figure.value for figure in tokens if figure.name == "response tokens")
    figures = [
        *memory,
        *tokens,
        *_time(config, shape, machine, row, observed),
        *_storage(config, shape, tokens_in_tables, observed),
    ]
    return ResourcePlan(figures, _assumptions(config, machine, row, observed), troubles)


def _memory(config: Config, shape: Shape, machine: Machine) -> tuple[list[Figure], list[str]]:
    gpu, training = GPUS[machine.gpu], training_memory(config, shape, machine.training_gpus)
    cache = engine_cache_tokens(config, shape, gpu.memory_gb)
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
        Figure(
            "memory",
            "training GPU: in all",
            (training.gpu + asleep) / GB,
            "GB",
            f"a {machine.gpu} has {gpu.memory_gb:g}",
        ),
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
    gpu = GPUS[machine.gpu]
    if training_bytes > RESERVE * gpu.memory_gb * GB:
        yield (
            f"the update needs {training_bytes / GB:.0f} GB a GPU and a {machine.gpu} has {gpu.memory_gb:g}: more "
            "processes with training.sharding=fsdp2, training.checkpoint_segments=true, a shorter "
            "policy.context_tokens, or an adapter"
        )
    if cache_tokens < config.policy.context_tokens:
        yield (
            f"a {machine.gpu} has no room for one context of {config.policy.context_tokens} tokens beside the weights"
        )


def _scale(config: Config) -> float:
    """Express the size of the batch in the paper's batches."""
    return config.rollout.tasks / TASKS * config.rollout.group_size / GROUP


def _tokens(config: Config, row: CostRow, observed: ObservedRun | None) -> list[Figure]:
    if observed:
        source = f"run {observed.run}: {observed.tasks} tasks measured"
        share = config.rollout.tasks / observed.tasks
        turns, sampled_tokens, trained_tokens = (
            figure * share for figure in (observed.turns, observed.sampled, observed.trained)
        )
        return [
            Figure("tokens", "turns", turns, "", source),
            Figure("tokens", "sampled tokens", sampled_tokens, "tokens", source),
            Figure("tokens", "response tokens", trained_tokens, "tokens", source),
        ]
    source = f"paper: {row.method}, {row.model}, {row.world}"
    scale = TASKS * _scale(config) * row.turns_scale
    return [
        Figure("tokens", "turns", row.cost.turns * scale, "", source),
        Figure("tokens", "response tokens", row.cost.training_tokens * scale, "tokens", source),
    ]


def _time(config: Config, shape: Shape, machine: Machine, row: CostRow, observed: ObservedRun | None) -> list[Figure]:
    if observed and observed.seconds:
        source = f"run {observed.run}, where it ran"
        seconds_of_stage = {
            name: seconds * config.rollout.tasks / observed.tasks for name, seconds in observed.seconds.items()
        }
        figures = [Figure("time", name, seconds, "s", source) for name, seconds in seconds_of_stage.items()]
        return [
            *figures,
            Figure(
                "time",
                "iteration",
                sum(seconds_of_stage.values()),
                "s",
                "stages and shards one after another; side by side: less",
            ),
        ]
    gpu, paper = GPUS[machine.gpu], GPUS[GPU]
    size = shape.parameters / PAPER[row.model].parameters * _scale(config) * row.turns_scale
    rollout = row.cost.rollout_s * size * (ENGINE_GPUS * paper.terabytes_s) / (machine.engine_gpus * gpu.terabytes_s)
    training = row.cost.training_s * size * (TRAINING_GPUS * paper.teraflops) / (machine.training_gpus * gpu.teraflops)
    return [
        Figure("time", "rollouts", rollout, "s", f"paper: {row.cost.rollout_s:g} s, by GPUs and their bandwidth"),
        Figure("time", "update", training, "s", f"paper: {row.cost.training_s:g} s, by GPUs and their arithmetic"),
        Figure("time", "iteration", rollout + training, "s", "one after the other, as sync_interval=1 asks"),
    ]


def _storage(config: Config, shape: Shape, sampled: float, observed: ObservedRun | None) -> list[Figure]:
    trained_weights = (
        shape.adapter_parameters(config.policy.lora_rank) if config.policy.adapter == "lora" else shape.parameters
    )
    table_bytes = observed.bytes / observed.trained * sampled if observed else TABLE_BYTES * sampled
    source = (
        f"run {observed.run}: {observed.bytes / observed.trained:.1f} bytes a response token"
        if observed
        else (f"measured: {TABLE_BYTES:g} bytes a response token, everything in it")
    )
    checkpoint_bytes = saved_bytes(config) * trained_weights
    return [
        Figure("storage", "tables", table_bytes / GB, "GB", source),
        Figure(
            "storage",
            "policy and optimiser",
            checkpoint_bytes / GB,
            "GB",
            f"{saved_bytes(config):g} bytes a trained weight",
        ),
        Figure("storage", "in all", (table_bytes + checkpoint_bytes) / GB, "GB", "for an iteration"),
    ]


def _assumptions(config: Config, machine: Machine, row: CostRow, observed: ObservedRun | None) -> list[str]:
    sentences = [
        "memory: activations without fragmentation; one path of policy.context_tokens, the longest there can be",
        "storage: every iteration's policy and optimiser are kept until they are pruned",
    ]
    if observed:
        sentences.append(
            f"tokens: as run {observed.run} had them for a task; another policy, world, method or N has others"
        )
    else:
        sentences += [
            "tokens: the paper's table counts sampled tokens only; prompts come on top and are mostly found in the "
            "prefix cache",
            f"time: linear in tasks, N and parameters; {machine.engine_gpus} GPU{'s'[: machine.engine_gpus > 1]} "
            f"sample and {machine.training_gpus} train; the paper's sixteen {GPU} taken as eight and eight",
        ]
        if row.turns_scale != 1.0:
            sentences.append(
                f"{config.environment.kind}: ALFWorld's row times {row.turns_scale:g}, the ratio of max_turns"
            )
        if row.method != config.method.kind:
            sentences.append(f"{config.method.kind}: the row of {row.method}, which samples as many whole trajectories")
    return sentences
