"""The canary: tokens scored by the engine and by the trainer. Catches a stale, wrong or unmerged policy.

Two questions: is the engine as near to the trainer as rounding lets it be; and is it nearer to the policy that the update wrote
than to the one before. The second finds a policy that is one step old where rounding is as large as a step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from r3l.engines.base import Engine, Replicated
from r3l.errors import EngineError

TOLERANCES = {"float32": 2e-3, "bfloat16": 0.3}
"""Mean log-probability difference that rounding explains. Seen: 1e-6 in float32; 0.03 to 0.1 in bfloat16 (SmolLM2-135M, where single
tokens that are hardly ever drawn differ by up to 1.3)."""
STALE = 1.3
"""So many times nearer to the policy before the step: stale. Seen in bfloat16: 1.6 and 1.7 if stale, 0.6 if not."""


def check_canary(engine: Engine, path: Path | None, dtype: str, tolerance: float = 0.0) -> float | None:
    """The mean difference between the engine and the trainer's ``canary.json``; None where there is none (a policy
    that no update wrote). `tolerance` 0: by `dtype`.

    Raises:
        EngineError: the difference is larger than the tolerance, the policy is stale, or the file is not a canary.
    """
    if path is None:
        return None
    try:
        canary = json.loads(path.read_text())
        token_ids, logprobs, before = list(canary["token_ids"]), list(canary["logprobs"]), list(canary.get("before") or ())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} is no canary: {error!r}; expected JSON with token_ids and logprobs, as the update writes it") from error
    return compare(engine, token_ids, logprobs, tolerance or TOLERANCES[dtype], before)


def compare(engine: Engine, token_ids: Sequence[int], logprobs: Sequence[float], tolerance: float,
            before: Sequence[float] = ()) -> float:
    """Mean |engine - trainer| over the log-probabilities of token_ids[1:]; of several servers, that of the farthest.

    Raises:
        EngineError: it is above `tolerance`, or not a number; or the engine is nearer to `before`, the trainer's before its step.
    """
    scores = engine.score_each(token_ids) if isinstance(engine, Replicated) else {"the engine": engine.score(token_ids)}
    farthest = max(_compare(name, scored, token_ids, logprobs, tolerance) for name, scored in scores.items())
    for name, scored in scores.items():
        if before:
            _refuse_stale(name, scored, logprobs, before)
    return farthest


def _compare(name: str, scored: Sequence[float], token_ids: Sequence[int], logprobs: Sequence[float], tolerance: float) -> float:
    if len(scored) != len(logprobs):
        raise EngineError(f"canary of {len(token_ids)} tokens: got {len(scored)} log-probabilities from {name} and "
                          f"{len(logprobs)} from the trainer, expected {len(token_ids) - 1} of both")
    differences = [abs(sampled - trained) for sampled, trained in zip(scored, logprobs, strict=True)]
    mean = sum(differences) / len(differences)
    if not mean <= tolerance:
        worst = max(range(len(differences)), key=lambda place: math.inf if math.isnan(differences[place]) else differences[place])
        raise EngineError(
            f"{name} does not run the policy that the trainer wrote: the canary's log-probabilities differ by {mean:.3g} a token, "
            f"tolerance {tolerance:.3g}; most that of token {worst + 1}, {scored[worst]:.6g} there and {logprobs[worst]:.6g} in the "
            "trainer. A stale or wrong policy was loaded; restart the engine, or set engine.canary_tolerance")
    return mean


def _refuse_stale(name: str, scored: Sequence[float], logprobs: Sequence[float], before: Sequence[float]) -> None:
    from_new, from_old = (math.dist(scored, trained) / math.sqrt(len(scored)) for trained in (logprobs, before))
    if from_new > STALE * from_old:
        raise EngineError(
            f"{name} runs the policy from before the last update: its log-probabilities are {from_old:.3g} from that one's and "
            f"{from_new:.3g} from those that the update wrote (root mean square). A stale policy was loaded; restart the engine")
