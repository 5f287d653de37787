"""The preset `arithmetic`: its sums are right, its splits share none, and its replies are paid as it says."""

import re

from r3l.config import compose
from r3l.config.environments import MathSettings
from r3l.environments.math.benchmarks import benchmark_problems


def test_every_sum_is_right_and_in_one_split() -> None:
    settings = compose(policy="smollm2", environment="arithmetic").environment
    assert isinstance(settings, MathSettings)
    assert (settings.max_turns, settings.answer_format, settings.reply_tokens) == (1, "boxed", 32)
    assert (settings.bad_reply, settings.malformed_reward) == ("end", -0.5)
    train, test = (benchmark_problems(settings, split) for split in ("train", "test"))
    assert (len(train), len(test)) == (340, 60)
    assert not {problem.question for problem in train} & {problem.question for problem in test}
    for problem in train + test:
        found = re.fullmatch(r"Replace the question mark: (\d+) \+ (\d+) = \\boxed\{\?\}", problem.question)
        assert found is not None
        assert int(problem.gold) == int(found[1]) + int(found[2])
