"""The canary: tokens scored by the engine and by the trainer. Catches a stale, wrong or unmerged policy.

Two questions: is the engine as near to the trainer as rounding lets it be; and has it made the step from the policy
before to the one that the update wrote. The second finds a policy that is one step old where rounding is as large as a
step.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from r3l.engines.base import Engine, Replicated
from r3l.errors import EngineError

CANARY = "canary.json"  # beside a policy, written by the update that made it
TOLERANCES = {"float32": 2e-3, "bfloat16": 0.3}
"""Mean log-probability difference that rounding explains. Seen: 1e-6 in float32; 0.03 to 0.1 in bfloat16 (SmolLM2-135M,
where single tokens that are hardly ever drawn differ by up to 1.3)."""
HALF, SURE, CLEAR = 0.5, 4.0, 1.5
"""Stale: less than half of the step is seen, by so many standard errors. As probabilities, not logarithms: tokens that
are hardly ever drawn move most by rounding. Seen in bfloat16 (SmolLM2, three engines): .83 to 1.12 if not stale, -.22
to .07 if stale, errors .04 to .12. A step that is less than `CLEAR` times as long as rounding is not judged: the
trainer's two sides are rounded, too, which the standard error does not know. Where it was half as long, -.33 +- .19 of
it was seen of a policy that was not stale."""


def check_canary(engine: Engine, path: Path | None, dtype: str, tolerance: float = 0.0) -> float | None:
    """Compare the engine with the trainer's ``canary.json``, and give the mean difference; None where there is none (a
    policy that no update wrote). `tolerance` 0: by `dtype`.

    Raises:
        EngineError: the difference is larger than the tolerance, the policy is stale, or the file is not a canary.
    """
    if path is None:
        return None
    try:
        canary = json.loads(path.read_text())
        token_ids, logprobs = list(canary["token_ids"]), list(canary["logprobs"])
        before = list(canary.get("before") or ())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{path} is not a canary: {error!r}; expected JSON with token_ids and logprobs, as the update writes it"
        ) from error
    return compare(engine, token_ids, logprobs, tolerance or TOLERANCES[dtype], before)


def compare(
    engine: Engine, token_ids: Sequence[int], logprobs: Sequence[float], tolerance: float, before: Sequence[float] = ()
) -> float:
    """Measure the mean |engine - trainer| over the log-probabilities of token_ids[1:]; of several servers, that of the
    farthest.

    Raises:
        EngineError: it is above `tolerance`, or not a number; or the engine is where the trainer was before its step,
            at `before`.
    """
    scores = engine.score_each(token_ids) if isinstance(engine, Replicated) else {"the engine": engine.score(token_ids)}
    farthest = max(
        _compare(name, logprobs_got, token_ids, logprobs, tolerance) for name, logprobs_got in scores.items()
    )
    for name, logprobs_got in scores.items():
        if before:
            _refuse_stale(name, logprobs_got, logprobs, before)
    return farthest


def _compare(
    name: str, scored: Sequence[float], token_ids: Sequence[int], logprobs: Sequence[float], tolerance: float
) -> float:
    if len(scored) != len(logprobs):
        raise EngineError(
            f"canary of {len(token_ids)} tokens: got {len(scored)} log-probabilities from {name} and "
            f"{len(logprobs)} from the trainer, expected {len(token_ids) - 1} of both"
        )
    for whose, of in ((name, scored), ("the trainer", logprobs)):
        if not all(map(math.isfinite, of)):
            raise EngineError(
                f"{whose} gives the canary's tokens log-probabilities that are NaN or infinite: the policy's weights "
                "hold NaN, or its numbers overflow in this dtype; go on from an earlier iteration, or set "
                "policy.dtype=float32"
            )
    differences = [abs(own - its) for own, its in zip(scored, logprobs, strict=True)]
    mean = sum(differences) / len(differences)
    if not mean <= tolerance:
        worst = max(
            range(len(differences)),
            key=lambda place: math.inf if math.isnan(differences[place]) else differences[place],
        )
        raise EngineError(
            f"{name} does not run the policy that the trainer wrote: the canary's log-probabilities differ by "
            f"{mean:.3g} per token, tolerance {tolerance:.3g}; the largest difference is at token {worst + 1}: "
            f"{scored[worst]:.6g} there and {logprobs[worst]:.6g} in the trainer. A stale or wrong policy was loaded; "
            "restart the engine, or set engine.canary_tolerance"
        )
    return mean


def _refuse_stale(name: str, scored: Sequence[float], logprobs: Sequence[float], before: Sequence[float]) -> None:
    """Raise `EngineError` where the engine still runs the policy from before the update: clearly less than half of the
    step is seen, in probabilities. Rounding is taken for what the engine differs from the nearer of the two sides."""
    old, new, probabilities = ([math.exp(logprob) for logprob in side] for side in (before, logprobs, scored))
    length = math.dist(old, new)
    if length <= CLEAR * min(math.dist(probabilities, old), math.dist(probabilities, new)):
        return
    step, change = ([b - a for a, b in zip(old, side, strict=True)] for side in (new, probabilities))
    # least squares: how much of the trainer's step explains what the engine changed
    share = sum(a * b for a, b in zip(step, change, strict=True)) / length**2
    # the standard error of that share, from what the step does not explain
    error = math.hypot(*[a * (b - share * a) for a, b in zip(step, change, strict=True)]) / length**2
    if share + SURE * error < HALF:
        raise EngineError(
            f"{name} runs the policy from before the last update: {share:.2f} +- {error:.2f} of the step that it "
            "wrote is seen in the canary's probabilities, expected 1. A stale policy was loaded; restart the engine"
        )
