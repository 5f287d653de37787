"""The paper's costs of a training step (its table `compute_measurements`: batch 96, N = 8, two servers of eight H20),
and which row a configuration is planned from. Turns and tokens are those of one task with its whole group; tokens are
sampled ones, no prompts."""

from dataclasses import dataclass

from r3l.config import Config

TASKS, GROUP = 96, 8
GPU, ENGINE_GPUS, TRAINING_GPUS = "h20", 8, 8  # which of the sixteen did what is not said: taken as half and half


@dataclass(frozen=True)
class Cost:
    turns: float
    training_tokens: float
    rollout_s: float
    training_s: float


@dataclass(frozen=True)
class CostRow:
    """The row that a plan starts from. `turns_scale`: for a world of longer or shorter episodes than the row's."""

    model: str
    world: str
    method: str
    cost: Cost
    turns_scale: float


COSTS: dict[tuple[str, str], dict[str, Cost]] = {
    ("qwen2.5-1.5b", "alfworld"): {
        "grpo": Cost(114.4, 44_141, 406.2, 87.6),
        "reflect_grpo": Cost(146.8, 52_400, 492.8, 109.4),
        "critique_grpo": Cost(208.0, 36_200, 756.3, 94.2),
        "r3l": Cost(75.2, 22_300, 372.4, 103.8),
    },
    ("qwen2.5-1.5b", "math"): {
        "grpo": Cost(10.2, 16_400, 342.6, 54.8),
        "reflect_grpo": Cost(19.6, 27_600, 418.3, 73.6),
        "critique_grpo": Cost(28.1, 17_300, 646.8, 59.2),
        "r3l": Cost(12.9, 18_000, 292.4, 87.4),
    },
    ("qwen3-4b", "alfworld"): {
        "grpo": Cost(81.6, 70_176, 713.8, 188.9),
        "reflect_grpo": Cost(108.0, 83_900, 836.4, 218.7),
        "critique_grpo": Cost(153.6, 50_600, 1356.8, 197.3),
        "r3l": Cost(58.8, 26_900, 670.4, 208.6),
    },
    ("qwen3-4b", "math"): {
        "grpo": Cost(8.72, 28_663, 1148.0, 121.3),
        "reflect_grpo": Cost(16.6, 42_200, 1392.6, 146.8),
        "critique_grpo": Cost(25.12, 30_874, 2318.4, 129.6),
        "r3l": Cost(11.24, 25_500, 773.5, 225.8),
    },
}
ALFWORLD_TURNS = 25


def row_for(config: Config, parameters: int, sizes: dict[str, int]) -> CostRow:
    """Choose the row of the model itself, else of the model nearest in size (by ratio); mathematics has its own rows,
    every other world takes ALFWorld's; a method without a row samples N whole trajectories, as GRPO does.

    Args:
        parameters: of the policy that is planned.
        sizes: parameters of the models that have rows.
    """
    model = min({name for name, _ in COSTS}, key=lambda name: max(parameters / sizes[name], sizes[name] / parameters))
    kind = config.environment.kind
    world = "math" if kind == "math" else "alfworld"
    rows = COSTS[model, world]
    method = config.method.kind if config.method.kind in rows else "grpo"
    return CostRow(
        model,
        world,
        method,
        rows[method],
        1.0 if kind in ("math", "alfworld") else config.environment.max_turns / ALFWORLD_TURNS,
    )
