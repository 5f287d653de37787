"""A goal of a training: a figure of a held-out evaluation that it is to reach, such as ``success>=0.6``."""

import re
from typing import NamedTuple, Self

from r3l.config import Config
from r3l.errors import ConfigError
from r3l.evaluation.score import Scores

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
            raise ConfigError(
                f"until={text}: it is held-out success that is looked at; give --evaluate-every N (evaluation.every)"
            )
        return cls(match[1], float(match[2]))

    def is_reached(self, scores: Scores) -> bool:
        return (scores["low"] if self.figure == "low" else scores["rate"]) >= self.bound
