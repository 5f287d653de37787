"""A learned way: ridge regression of the true advantage on what stands in the tables, learned on other policies'
exams."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from r3l.credit.advantages import Floats
from r3l.lab.exam.records import Exam, Group, different_turns
from r3l.lab.exam.truth import true_advantages
from r3l.lab.exam.ways import Way
from r3l.records import Kind

NAME = "ridge regression"
PENALTY = 10.0  # of standardised features, beside some thousand turns


def regressions(exams: Sequence[Exam]) -> list[Way]:
    """Learn one way for each exam, from all exams but it; none where there is one exam alone."""
    if len(exams) < 2:
        return []
    seen = [[(features(group), true_advantages(group)) for group in exam.groups] for exam in exams]
    others = [[pair for k, pairs in enumerate(seen) if k != own for pair in pairs] for own in range(len(exams))]
    return [fitted(pairs) for pairs in others]


def fitted(pairs: Sequence[tuple[Sequence[Floats], Sequence[Floats]]]) -> Way:
    """Fit the advantages on the features of the same turns."""
    given, truth = (np.concatenate([one for pair in pairs for one in pair[side]]) for side in (0, 1))
    measured = ~np.isnan(truth)
    given, truth = given[measured], truth[measured]
    centre, scale = given.mean(axis=0), given.std(axis=0)
    scale[scale == 0] = 1.0  # a feature that never varies says nothing
    standard = (given - centre) / scale
    weights = np.linalg.solve(
        standard.T @ standard + PENALTY * np.eye(standard.shape[1]), standard.T @ (truth - truth.mean())
    )
    return lambda group: [truth.mean() + (own - centre) / scale @ weights for own in features(group)]


def features(group: Group) -> list[Floats]:
    """Describe each turn of each member by numbers that its tables have, of member g shape [K_g, F]: the outcome, the
    place, the reply, what it changed, and how others fared that came to the same state or took the same turn."""
    places = different_turns(group.turns, group.states)
    mean = fmean(member.reward for member in group.members)
    in_state, after_turn = defaultdict(list), defaultdict(list)
    for member, states, own in zip(group.members, group.states, places, strict=True):
        for state, place in zip(states, own, strict=True):
            in_state[state].append(member.reward)
            after_turn[place].append(member.reward)
    described = []
    for member, turns, states, own in zip(group.members, group.turns, group.states, places, strict=True):
        rows, before, actions, hashes = [], 0.0, set(), set()
        for turn, state, place in zip(turns, states, own, strict=True):
            progress = before if turn.progress is None else turn.progress
            outcome = member.reward - mean
            rows.append(
                [
                    outcome,
                    turn.turn,
                    len(turns) - turn.turn,
                    turn.turn == len(turns) - 1,
                    (turn.turn == len(turns) - 1) * outcome,
                    member.kind == Kind.DISTILLED,
                    turn.valid,
                    len(turn.response_ids),
                    turn.action in actions,
                    turn.observation_hash in hashes,
                    progress,
                    progress - before,
                    (progress - before) * outcome,
                    fmean(in_state[state]) - mean,
                    fmean(after_turn[place]) - fmean(in_state[state]),
                    (fmean(after_turn[place]) - fmean(in_state[state])) * (len(after_turn[place]) > 1),
                ]
            )
            before = progress
            actions.add(turn.action)
            hashes.add(turn.observation_hash)
        described.append(np.array(rows, dtype=np.float64))
    return described
