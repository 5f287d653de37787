"""Which policies can be trained on one GPU that samples and trains in turns, and with how long a context."""

from dataclasses import dataclass

from r3l.config import Config, compose
from r3l.planning.memory import ASLEEP_BYTES, GPU_MEMORY_GB, RESERVE, engine_cache_tokens, training_memory
from r3l.planning.shapes import Shape, shape_of

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
