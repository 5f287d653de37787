"""Bytes on each GPU and in each host, from a policy's shape and the settings of the update and the engine."""

from dataclasses import dataclass

from r3l.config import Config, compose
from r3l.planning.shapes import Shape, shape_of

# As their makers have it.
GPU_MEMORY_GB = {"l4": 24.0, "rtx4090": 24.0, "l40s": 48.0, "a100": 80.0, "h20": 96.0, "h100": 80.0, "h200": 141.0}
WIDTHS = {"float32": 4, "bfloat16": 2}
ASLEEP_BYTES = 2e9  # taken for what a sleeping server keeps on its GPU: CUDA's context and the graphs that it captured
RESERVE = 0.9  # vLLM's share of a GPU, and what an update may count on


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on one training GPU, and in the memory of the host that holds `processes` of them."""

    weights: float  # float32 masters, gradients, two moments; gathered weights and gradients where they are sharded
    activations: float
    logits: float
    host: float

    @property
    def gpu(self) -> float:
        return self.weights + self.activations + self.logits


def training_memory(config: Config, shape: Shape, processes: int) -> TrainingMemory:
    """Count weights as `r3l.training` holds them; activations of the longest path, which is all that a depth-first pass
    keeps at once, and what a pass on a GPU comes down to where memory runs out: a row at a time."""
    settings, policy = config.training, config.policy
    width = WIDTHS[settings.dtype]
    weights_in_all, trained_weights = shape.parameters, shape.parameters
    if policy.adapter == "lora":
        trained_weights = shape.adapter_parameters(policy.lora_rank)
        weights = weights_in_all * width + trained_weights * 16.0
    elif settings.sharding == "fsdp2":
        # What is sharded: master, gradient, two moments. Gathered until the step's end: weights in `dtype`, gradients
        # in float32.
        weights = trained_weights * 16.0 / processes + trained_weights * (width + 4.0)
    else:
        weights = trained_weights * (16.0 + (width if settings.dtype == "bfloat16" else 0))
    path = policy.context_tokens
    activations = (
        shape.hidden * 2.0 * width * shape.layers * path
        if settings.checkpoint_segments
        else shape.activation_bytes(width) * path
    )
    # A chunk in float32: logits, their softmax, their gradient.
    logits = 3.0 * 4 * settings.logits_chunk * shape.vocabulary
    # Each process reads the whole model before it is sharded.
    loading = processes * weights_in_all * (width if policy.adapter == "lora" else 4.0)
    return TrainingMemory(weights, float(activations), logits, max(loading, trained_weights * saved_bytes(config)))


def saved_bytes(config: Config) -> float:
    """Count the bytes that a step writes for each trained weight: the policy, two moments, masters where the policy is
    not float32, and the teacher where it is an average."""
    teacher = 4.0 if config.training.teacher_average else 0.0
    if config.policy.adapter == "lora":
        return 4.0 + 8.0 + teacher
    policy = WIDTHS[config.policy.dtype]
    return policy + 8.0 + (4.0 if config.policy.dtype != "float32" else 0.0) + teacher


def engine_cache_tokens(config: Config, shape: Shape, gpu_gb: float) -> float:
    """Count the tokens whose keys and values one sampling GPU holds beside the weights (one data-parallel rank a GPU);
    negative: no room."""
    width = WIDTHS[config.policy.dtype]
    return (RESERVE * gpu_gb * 1e9 - shape.parameters * width) / shape.kv_bytes(width)


STEP = 1024
SIZES = ("l4", "l40s", "h100")  # 24, 48 and 80 GB
EXAMPLES = (("qwen2.5-1.5b", "none"), ("qwen2.5-1.5b", "lora"), ("qwen2.5-7b", "lora"))


@dataclass(frozen=True)
class Fit:
    """One policy on one kind of GPU."""

    policy: str
    adapter: str  # none: all weights are trained
    gpu: str
    memory_gb: float
    context_tokens: int  # the longest path with which both turns fit, up to the policy's own; 0: none does
    needs_gb: float  # of the update at that length, or at the shortest one


def fits(machine: str, asked: Config) -> list[Fit]:
    """List what fits on one GPU of 24, 48 and 80 GB: the examples, and the policy that was asked for."""
    examples = [
        compose(policy=model, machine=machine, assignments=[f"policy.adapter={adapter}"]) for model, adapter in EXAMPLES
    ]
    example_policies = {(one.policy.name, one.policy.adapter) for one in examples}
    others = [] if (asked.policy.name, asked.policy.adapter) in example_policies else [asked]
    return [fit(config, gpu) for config in [*examples, *others] for gpu in SIZES]


def fit(config: Config, gpu: str) -> Fit:
    """Find the longest context of `config`'s policy on one GPU, in steps of 1,024 tokens.

    Raises:
        ConfigError: the policy's shape is not known.
    """
    shape, most = shape_of(config.policy), config.policy.context_tokens
    lengths = list(range(STEP, most + 1, STEP)) or [most]
    longest = max((length for length in lengths if _holds(config, shape, gpu, length)), default=0)
    needed = _update_bytes(config, shape, longest or lengths[0])
    return Fit(config.policy.name, config.policy.adapter, gpu, GPU_MEMORY_GB[gpu], longest, needed / 1e9)


def _holds(config: Config, shape: Shape, gpu: str, length: int) -> bool:
    memory = GPU_MEMORY_GB[gpu]
    return (
        _update_bytes(config, shape, length) <= RESERVE * memory * 1e9
        and engine_cache_tokens(config, shape, memory) >= length
    )


def _update_bytes(config: Config, shape: Shape, length: int) -> float:
    policy = config.policy.model_copy(update={"context_tokens": length})
    return training_memory(config.model_copy(update={"policy": policy}), shape, 1).gpu + ASLEEP_BYTES
