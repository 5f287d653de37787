"""Speed of an iteration and remaining time of its sampling, from the counts of the display and the plan."""

from r3l.config import Config
from r3l.methods import plan
from r3l.stages import stages_that

Counts = dict[str, dict[str, float]]  # stage -> name -> sum so far
SAMPLING = stages_that(lambda stage: stage.samples)
ENOUGH = 0.1  # share of the first stage's attempts after which a guess is worth showing


def expected(config: Config) -> dict[str, float]:
    """Return the number of attempts per sampling stage in one iteration; for retries the largest possible number."""
    made = plan(config.method, config.rollout.group_size)
    retried = (
        config.rollout.tasks
        * (made.bases if made.retried_bases is None else made.retried_bases)
        * made.retries_per_base
    )
    return {
        "base": config.rollout.tasks * made.bases,
        "reflections": retried if made.reflection != "none" else 0,
        "retries": retried,
        "continuations": config.rollout.tasks * made.bases * made.continued_turns * made.continuations,
    }


def tokens_per_second(counts: Counts, now: float) -> float:
    """Return the sampled tokens per second since sampling began; 0 before."""
    begun = [counts[stage]["began"] for stage in SAMPLING if counts.get(stage, {}).get("tokens")]
    tokens = sum(counts.get(stage, {}).get("tokens", 0.0) for stage in SAMPLING)
    return tokens / (now - min(begun)) if begun and now > min(begun) else 0.0


def seconds_left(counts: Counts, planned: dict[str, float], now: float) -> float | None:
    """Return the remaining seconds of sampling; None while it is too early. A stage that has not begun is assumed to
    need as many tokens per attempt as the first stage."""
    first = next(iter(planned), "")
    seen, speed = counts.get(first, {}), tokens_per_second(counts, now)
    if not speed or seen.get("done", 0) < max(1.0, ENOUGH * planned[first]):
        return None
    usual = each(seen, 0.0)
    return sum(tokens_left(counts, stage, most, usual) for stage, most in planned.items()) / speed


def tokens_left(counts: Counts, stage: str, most: float, usual: float) -> float:
    """Count the tokens of the attempts still to be made, fewer than planned if shards ended without needing all of
    theirs; less what those under way have sampled."""
    seen, shards = counts.get(stage, {}), counts.get("shards", {}).get("planned", 0)
    done = max(seen.get("done", 0) / most if most else 1.0, seen.get("shards", 0) / shards if shards else 0.0)
    under_way = seen.get("tokens", 0.0) - seen.get("done_tokens", 0.0)
    return max(0.0, most * max(0.0, 1 - done) * each(seen, usual) - under_way)


def each(seen: dict[str, float], usual: float) -> float:
    """Return the tokens per finished attempt."""
    return seen["done_tokens"] / seen["done"] if seen.get("done") and seen.get("done_tokens") else usual
