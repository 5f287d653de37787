"""GiGPO (Feng et al. 2025, arXiv:2505.10978): groups within the group, of turns that begin in the same state."""

from collections.abc import Sequence

from r3l.config.methods.rivals import GiGPOSettings
from r3l.credit.advantages import Floats
from r3l.credit.turns import anchored_advantages
from r3l.methods.base import PlayedGroup, RatioMethod
from r3l.records import Turn


class GiGPO(RatioMethod[GiGPOSettings]):
    """N trajectories. A turn's advantage is its trajectory's (GRPO's) plus `step_weight` times its own: its discounted
    return against those of the group's turns with the same anchor, an equal observation (Eq. 8). Where the
    environment pays turns, a return is made of what they were paid. Loss: GRPO's.
    """

    credits_turns = True

    def turn_advantages(self, settings: GiGPOSettings, group: PlayedGroup) -> list[Floats]:
        returns = group.returns(settings.discount)
        steps = anchored_advantages(returns, [anchors(turns) for turns in group.turns], settings.scale)
        return [one.advantage + settings.step_weight * step for one, step in zip(group.credit, steps, strict=True)]


def anchors(turns: Sequence[Turn]) -> list[str]:
    """Name the state before each turn, by the hash of its observation. A malformed reply is answered with what is wrong
    with it and leaves the state as it was: the turn after it begins where it began."""
    hashes: list[str] = []
    for before, turn in zip([None, *turns], turns, strict=False):
        hashes.append(turn.observation_hash if before is None or before.valid else hashes[-1])
    return hashes
