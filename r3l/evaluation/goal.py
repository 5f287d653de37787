"""A goal of a training: a figure of a held-out evaluation that it is to reach, such as ``success>=0.6``."""

import re
from typing import NamedTuple, Self

from r3l.config import Config
from r3l.errors import ConfigError
from r3l.evaluation.score import Scores

HELD_OUT = "it is held-out success that is looked at; give --evaluate-every N (evaluation.every)"
FORM = re.compile(r"\s*(success|low)\s*>=\s*(0?\.\d+|[01](?:\.0*)?)\s*")


class Goal(NamedTuple):
    """`figure`: success, or low, the lower end of its 95 % interval, which chance does not reach so easily."""

    figure: str
    bound: float

    @classmethod
    def of(cls, text: str, config: Config) -> Self | None:
        """Read a goal; None where there is none. Raise `ConfigError` where it can't be read, or is never looked at."""
        if not text:
            return None
        if not (match := FORM.fullmatch(text)):
            raise ConfigError(f"until={text!r:.80}: expected success>=SHARE or low>=SHARE, such as success>=0.6")
        if not config.evaluation.every:
            raise ConfigError(f"until={text}: {HELD_OUT}")
        return cls(match[1], float(match[2]))

    def is_reached(self, scores: Scores) -> bool:
        return (scores["low"] if self.figure == "low" else scores["rate"]) >= self.bound


def check_return(evaluations: int, config: Config) -> None:
    """Raise `ConfigError` where a return to the best policy is asked for that could never come."""
    if evaluations < 0:
        raise ConfigError(f"return_after={evaluations}: expected a number of evaluations, or 0 for never")
    if evaluations and not config.evaluation.every:
        raise ConfigError(f"return_after={evaluations}: {HELD_OUT}")
    if evaluations and config.branch:
        raise ConfigError(f"return_after={evaluations}: branch {config.branch} has no branches of its own")
