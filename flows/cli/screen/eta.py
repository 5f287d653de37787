"""Speed of an iteration and remaining time of its sampling, from the counts of the display and the plan."""

from r3l.config import Config
from r3l.methods import plan
from r3l.stages import stages_that

Counts = dict[str, dict[str, float]]  # stage -> name -> sum so far
SAMPLING = stages_that(lambda stage: stage.samples)
ENOUGH = 0.1  # share of the first stage's attempts after which a guess is worth showing


def expected_attempts(config: Config) -> dict[str, float]:
    """Count the attempts per sampling stage in one iteration; for retries the largest possible number."""
    sampling_plan = plan(config.method, config.rollout.group_size)
    retries = (
        config.rollout.tasks
        * (sampling_plan.bases if sampling_plan.retried_bases is None else sampling_plan.retried_bases)
        * sampling_plan.retries_per_base
    )
    return {
        "base": config.rollout.tasks * sampling_plan.bases,
        "reflections": retries if sampling_plan.reflection != "none" else 0,
        "retries": retries,
        "continuations": config.rollout.tasks
        * sampling_plan.bases
        * sampling_plan.continued_turns
        * sampling_plan.continuations,
    }


def tokens_per_second(counts: Counts, now: float) -> float:
    """Measure the sampled tokens per second since sampling began; 0 before."""
    starts = [counts[stage]["began"] for stage in SAMPLING if counts.get(stage, {}).get("tokens")]
    tokens = sum(counts.get(stage, {}).get("tokens", 0.0) for stage in SAMPLING)
    return tokens / (now - min(starts)) if starts and now > min(starts) else 0.0


def seconds_left(counts: Counts, planned: dict[str, float], now: float) -> float | None:
    """Estimate the remaining seconds of sampling; None while it is too early. A stage that has not begun is assumed to
    need as many tokens per attempt as the first stage."""
    first = next(iter(planned), "")
    first_counts, speed = counts.get(first, {}), tokens_per_second(counts, now)
    if not speed or first_counts.get("done", 0) < max(1.0, ENOUGH * planned[first]):
        return None
    usual = each(first_counts, 0.0)
    return sum(tokens_left(counts, stage, most, usual) for stage, most in planned.items()) / speed


def tokens_left(counts: Counts, stage: str, most: float, usual: float) -> float:
    """Count the tokens of the attempts still to be made, fewer than planned if shards ended without needing all of
    theirs; less what those under way have sampled."""
    stage_counts, shards = counts.get(stage, {}), counts.get("shards", {}).get("planned", 0)
    share_done = max(
        stage_counts.get("done", 0) / most if most else 1.0, stage_counts.get("shards", 0) / shards if shards else 0.0
    )
    under_way = stage_counts.get("tokens", 0.0) - stage_counts.get("done_tokens", 0.0)
    return max(0.0, most * max(0.0, 1 - share_done) * each(stage_counts, usual) - under_way)


def each(stage_counts: dict[str, float], usual: float) -> float:
    """Divide the tokens by the finished attempts."""
    return (
        stage_counts["done_tokens"] / stage_counts["done"]
        if stage_counts.get("done") and stage_counts.get("done_tokens")
        else usual
    )
