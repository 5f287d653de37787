"""Methods by the `kind` of their settings, plug-ins among them, and the two stages that flows run: neither they nor the
trainer know a name."""

from collections.abc import Iterable, Sequence
from typing import Any

from r3l import plugins
from r3l.config.methods import AnyMethod
from r3l.errors import ConfigError
from r3l.methods.bapo import BAPO
from r3l.methods.base import UNCOUNTED, Method
from r3l.methods.dapo import DAPO
from r3l.methods.grpo import GRPO
from r3l.methods.gspo import GSPO
from r3l.methods.guided.agent_rlvr import AgentRLVR
from r3l.methods.guided.critique_grpo import CritiqueGRPO
from r3l.methods.guided.erl import ERL
from r3l.methods.guided.hint import HINT
from r3l.methods.guided.reflect_grpo import ReflectGRPO
from r3l.methods.guided.reflect_retry_reward import ReflectRetryReward
from r3l.methods.ngrpo import NGRPO
from r3l.methods.opmd import OPMD
from r3l.methods.r3l import R3L
from r3l.methods.raft import RAFT
from r3l.methods.rloo import RLOO
from r3l.methods.stages import credit_groups, training_rows
from r3l.methods.taught.contexts import ActionIds
from r3l.methods.taught.rlsd import RLSD
from r3l.methods.taught.rltf_sd import RLTFSD
from r3l.methods.taught.sdpo import SDPO
from r3l.methods.turns.gigpo import GiGPO
from r3l.methods.turns.hgpo import HGPO
from r3l.methods.turns.process_supervision import ProcessSupervision
from r3l.methods.turns.vineppo import VinePPO
from r3l.records import Credit, Episode, Event, Reflection, SamplingPlan, TrainingRow, Trajectory, Turn

METHODS: dict[str, Method[Any]] = {
    "r3l": R3L(),
    "raft": RAFT(),
    "grpo": GRPO(),
    "opmd": OPMD(),
    "gspo": GSPO(),
    "dapo": DAPO(),
    "bapo": BAPO(),
    "reflect_grpo": ReflectGRPO(),
    "critique_grpo": CritiqueGRPO(),
    "ngrpo": NGRPO(),
    "reflect_retry_reward": ReflectRetryReward(),
    "rloo": RLOO(),
    "gigpo": GiGPO(),
    "hint": HINT(),
    "agent_rlvr": AgentRLVR(),
    "process_supervision": ProcessSupervision(),
    "vineppo": VinePPO(),
    "hgpo": HGPO(),
    "erl": ERL(),
    "rltf_sd": RLTFSD(),
    "sdpo": SDPO(),
    "rlsd": RLSD(),
}


def method_of(settings: AnyMethod) -> Method[Any]:
    """Find the method of `settings.kind`.

    Raises:
        ConfigError: nothing has this kind, or what has it is a plug-in that is no `Method`.
    """
    plugins.refuse_taken("method", settings.kind, METHODS)
    if settings.kind in METHODS:
        return METHODS[settings.kind]
    plugin = plugins.load("method", settings.kind)
    if not issubclass(plugin, Method):
        raise ConfigError(
            f"method.kind={settings.kind}: {plugin.__module__}.{plugin.__qualname__} is not derived from "
            f"{Method.__module__}.{Method.__name__}"
        )
    method: Method[Any] = plugin()
    return method


def plan(settings: AnyMethod, group_size: int) -> SamplingPlan:
    """Plan what exploration samples for one task, within `group_size` = N trajectories."""
    return method_of(settings).plan(settings, group_size)


def credit_stage(
    settings: AnyMethod, trajectories: Sequence[Trajectory], turns: Sequence[Turn] = ()
) -> tuple[list[Credit], list[Event]]:
    """Credit every member of every group. `trajectories`: base and distilled ones, groups whole, and continuations from
    them (retries are passed over); `turns`: those of the former, in order, for methods that credit turns.

    Each of them gives one `Credit` or one `dropped` event with its reason.
    """
    return credit_groups(method_of(settings), settings, trajectories, turns)


def training_rows_stage(
    settings: AnyMethod,
    episodes: Sequence[Episode],
    reflections: Sequence[Reflection],
    credit: Sequence[Credit],
    action_ids: ActionIds | None = None,
) -> tuple[list[TrainingRow], list[Event]]:
    """Make the rows that the update job reads. `episodes`: base and distilled ones, and the retries as they ran, with
    guidance; `action_ids`: how the ids of a turn's action are found, where a teacher weighs these alone.

    Each credited member gives one row or one `no_gradient` event; each reflection that is no lesson a `no_meta_task`
    event.
    """
    return training_rows(method_of(settings), settings, episodes, reflections, credit, action_ids)


def counted_groups(credit: Iterable[Credit]) -> int:
    """Count the groups in the batch's mean: the denominator of `groups` reductions. A filtered group is not in it."""
    return len({one.group_id for one in credit if one.rule not in UNCOUNTED})
