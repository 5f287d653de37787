"""The settings that every environment has."""

from typing import Literal

from pydantic import Field

from r3l.config.section import WEEK_S, Member, identity_of
from r3l.stages import stages_that


class EnvironmentSettings(Member):
    IDENTITY_OF = stages_that(lambda stage: bool(stage.tasks_of) or stage.samples or stage.plays)

    split: str = Field("train", description="Split that the training tasks are drawn from.")
    task_types: tuple[str, ...] = Field(
        (), description="Task types that are played in training and evaluation. If empty, all of them."
    )
    max_turns: int = Field(25, ge=1, le=1000, description="Largest number of turns per episode, 1 to 1000.")
    reply_tokens: int = Field(
        512, ge=8, le=32768, description="Largest number of tokens per reply, 8 to 32768 (paper: 512)."
    )
    bad_reply: Literal["continue", "end"] = Field(
        "continue", description="What a malformed reply does. continue: it costs a turn; end: it ends the episode."
    )
    malformed_reward: float = Field(
        0.0, ge=-1, le=0, description="Reward of an episode that a malformed reply ended, -1 to 0."
    )
    workers: int = Field(
        2,
        ge=1,
        le=512,
        description="Number of worker processes that play episodes, 1 to 512.",
        json_schema_extra=identity_of(),
    )
    step_timeout_s: float = Field(
        60,
        gt=0,
        le=WEEK_S,
        description="Seconds that a worker may take for one call before it is replaced, above 0, up to 604800.",
        json_schema_extra=identity_of(),
    )
    episode_s: float = Field(
        1800,
        gt=0,
        le=WEEK_S,
        description="Seconds that the world may take for all calls of one episode together, above 0, up to 604800. "
        "Beyond them the attempt ends as an environment error.",
        json_schema_extra=identity_of(),
    )
    data_root: str = Field(
        "data/tasks", description="Folder that holds the tasks of the environment.", json_schema_extra=identity_of()
    )
