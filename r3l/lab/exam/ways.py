"""Ways to give credit to the turns of a group: methods of the product, R3L with its pivot moved, methods from outside.

All are asked about the same members, base and stitched trajectories, whatever they would have sampled themselves: it is
the rule of credit that is examined.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from r3l.config.compose import compose, preset_names
from r3l.config.methods.rivals import VinePPOSettings
from r3l.config.methods.shared import MethodSettings
from r3l.config.methods.taught import TaughtSettings
from r3l.credit.advantages import Floats
from r3l.exploration.continuations import continued_turns
from r3l.lab.exam.records import Group
from r3l.lab.exam.truth import VINE
from r3l.methods import credit_stage, method_of
from r3l.records import Credit, Kind, Trajectory
from r3l.system.seeds import derive

Way = Callable[[Group], list[Floats]]  # a group to the advantage of each turn of each member, shape [K_g]
OWN = "R3L"
UNMASKED = "R3L, pivot at the first turn"
PRESETS = {
    "GRPO": "grpo",
    OWN: "paper",
    "R3L without amplification": "r3l_without_positive",
    "GiGPO": "gigpo",
    "HGPO": "hgpo",
    "process supervision": "process_supervision",
    "VinePPO": "vineppo",
    "RLSD": "rlsd",
    "SERL": "serl",
    "SDPO": "sdpo",
}


def ways(methods: Sequence[str] = (), seed: int = 0) -> dict[str, Way]:
    """Make every way that is examined, by its name; `methods` are presets, or ``module:Class`` from outside.

    Raises:
        ConfigError: nothing has the name of a method.
    """
    there = {name: preset for name, preset in PRESETS.items() if preset in preset_names("methods")}
    chosen = {name: compose(method=preset).method for name, preset in there.items()}
    chosen |= {name: compose(method=name).method for name in methods}
    every_turn = VinePPOSettings(turns_sampled=256)
    return {
        **{name: of_method(settings) for name, settings in chosen.items()},
        "VinePPO at every turn": of_method(every_turn),
        "R3L, the oracle's pivot": moved(chosen[OWN], lambda base, group: group.oracle.get(base.trajectory_id)),
        "R3L, a random pivot": moved(
            chosen[OWN], lambda base, _: Random(derive(seed, "pivot", base.trajectory_id)).randrange(base.turns)
        ),
        UNMASKED: moved(chosen[OWN], lambda base, group: 0),
    }


def of_method(settings: MethodSettings) -> Way:
    """Ask a method for the credit that its rows would carry: 0 before the turn up to which it masks, and on members
    that it leaves out. Of a method with a teacher the mean over a reply's tokens, as they weigh in its first
    iteration."""

    def way(group: Group) -> list[Floats]:
        credit = turn_credit(group, masks_and_credit(settings, group))
        return by_teacher(settings, group, credit) if isinstance(settings, TaughtSettings) else credit

    return way


def by_teacher(settings: TaughtSettings, group: Group, credit: Sequence[Floats]) -> list[Floats]:
    """Let the gaps to the teacher make the credit of each member that it teaches."""
    from r3l.losses.teacher import mean_advantage  # torch, which the other ways do without

    method, taught = method_of(settings), []
    rule, gaps = method.taught(settings, 0), group.gaps.get(settings.taught_by, {})
    for member, own in zip(group.members, credit, strict=True):
        replies = gaps.get(member.trajectory_id) if rule else None
        if replies is None:
            taught.append(np.zeros(len(own)) if method.taught_only else own)
        else:
            means = [mean_advantage(float(a), gap, **rule) for a, gap in zip(own, replies, strict=True)]
            taught.append(np.array(means))
    return taught


def moved(settings: MethodSettings, pivot: Callable[[Trajectory, Group], int | None]) -> Way:
    """Mask up to another pivot where R3L masks: on a retried base up to `pivot` (None: where it was), on what was
    stitched to it no more than the two share."""

    def way(group: Group) -> list[Floats]:
        credit = masks_and_credit(settings, group)
        bases = {one.trajectory_id: one for one in group.members if one.kind == Kind.BASE}
        retried = {str(one.base_id) for one in group.members if one.kind == Kind.DISTILLED}
        for one in group.members:
            base = bases.get(one.trajectory_id if one.kind == Kind.BASE else str(one.base_id))
            place = pivot(base, group) if base and base.trajectory_id in retried else None
            if place is not None and one.trajectory_id in credit:
                shared = place if one.kind == Kind.BASE else min(place, int(one.shared_turns or 0))
                credit[one.trajectory_id] = replace(credit[one.trajectory_id], mask_turn=shared)
        return turn_credit(group, credit)

    return way


def masks_and_credit(settings: MethodSettings, group: Group) -> dict[str, Credit]:
    """Map each member to its `Credit`; those that the method leaves out have none."""
    turns = [turn for own in group.turns for turn in own]
    credit, _ = credit_stage(settings, [*group.members, *continued(settings, group)], turns)
    return {one.trajectory_id: one for one in credit}


def continued(settings: MethodSettings, group: Group) -> list[Trajectory]:
    """Hand a method that plays on the continuations that the truth leaves it, from the turns that it would choose."""
    if not isinstance(settings, VinePPOSettings):
        return []
    return [
        replace(
            member,
            trajectory_id=f"{member.trajectory_id}/from={turn}/continuation={number}",
            kind=Kind.CONTINUATION,
            base_id=member.trajectory_id,
            pivot_turn=turn,
            reward=group.rewards[states[turn]][number],
        )
        for member, states in zip(group.members, group.states, strict=True)
        for turn in continued_turns(len(states), settings.turns_sampled)
        for number in range(min(VINE, settings.continuations))
        if number in group.rewards.get(states[turn], {})
    ]


def turn_credit(group: Group, credit: Mapping[str, Credit]) -> list[Floats]:
    """Spread credit over turns: the advantage of each from the mask on, 0 before it."""
    spread = []
    for member, turns in zip(group.members, group.turns, strict=True):
        own = np.zeros(len(turns))
        if one := credit.get(member.trajectory_id):
            own[:] = one.advantage if one.turn_advantages is None else one.turn_advantages
            own[: one.mask_turn] = 0.0
        spread.append(own)
    return spread
