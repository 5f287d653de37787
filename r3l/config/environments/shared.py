"""The settings that every environment has."""

from typing import Literal

from pydantic import Field

from r3l.config.numbers import above, number, within
from r3l.config.section import WEEK_S, Member, identity_of
from r3l.stages import stages_that


class EnvironmentSettings(Member):
    IDENTITY_OF = stages_that(lambda stage: bool(stage.tasks_of) or stage.samples or stage.plays)

    split: str = Field("train", description="Split that the training tasks are drawn from.")
    task_types: tuple[str, ...] = Field(
        (), description="Task types that are played in training and evaluation. If empty, all of them."
    )
    max_turns: int = number(25, within(1, 1000), "Largest number of turns per episode, {}.")
    reply_tokens: int = number(512, within(8, 32768), "Largest number of tokens per reply, {} (paper: 512).")
    bad_reply: Literal["continue", "end"] = Field(
        "continue", description="What a malformed reply does. continue: it costs a turn; end: it ends the episode."
    )
    malformed_reward: float = number(0.0, within(-1, 0), "Reward of an episode that a malformed reply ended, {}.")
    workers: int = number(1, within(1, 512), "Number of worker processes that play episodes, {}.", identity_of())
    step_timeout_s: float = number(
        60, above(0, WEEK_S), "Seconds that a worker may take for one call before it is replaced, {}.", identity_of()
    )
    episode_s: float = number(
        1800,
        above(0, WEEK_S),
        "Seconds that the world may take for all calls of one episode together, {}. Beyond them the attempt ends as "
        "an environment error.",
        identity_of(),
    )
    data_root: str = Field(
        "data/tasks", description="Folder that holds the tasks of the environment.", json_schema_extra=identity_of()
    )
