"""Settings of the environments that are other packages': gymnasium, verifiers; and of tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from r3l.config.environments.shared import EnvironmentSettings
from r3l.config.numbers import number, within
from r3l.config.section import LARGEST


class AdaptedSettings(EnvironmentSettings):
    """What all environments of other packages have."""

    system_prompt: str = Field("", description="System prompt of an episode. If empty, the one that ships.")
    observation_characters: int = number(
        8000,
        within(100, 1_000_000),
        "Largest number of characters of an observation, {}. The middle of a longer one is left out.",
    )
    train_tasks: int = number(1000, within(1, 100_000), "Number of training tasks, {}.")
    heldout_tasks: int = number(200, within(1, 100_000), "Number of held-out tasks, {}.")
    tasks_seed: int = number(0, within(0, LARGEST), "Seed of the tasks, {}.")


class RangedSettings(AdaptedSettings):
    """What those have whose rewards may be any numbers."""

    lowest_reward: float = number(
        0.0,
        within(-1_000_000_000, 1_000_000_000),
        "Sum of an episode's rewards that becomes reward 0, {}. A lower sum fails the attempt.",
    )
    highest_reward: float = number(
        1.0,
        within(-1_000_000_000, 1_000_000_000),
        "Sum of an episode's rewards that becomes reward 1 and counts as a success, {}. A higher sum fails the "
        "attempt.",
    )

    @model_validator(mode="after")
    def refuse_no_range(self) -> RangedSettings:
        if self.lowest_reward >= self.highest_reward:
            raise ValueError(
                f"lowest_reward={self.lowest_reward:g} must be below highest_reward={self.highest_reward:g}"
            )
        return self


class GymnasiumSettings(RangedSettings):
    kind: Literal["gymnasium"] = "gymnasium"
    reply_format: Literal["tags", "text"] = Field(
        "tags",
        description="How a reply gives its action. tags: <think>...</think> <action>...</action>; text: it is the "
        "action.",
    )
    env: str = Field(
        "",
        description="Id of the registered environment, such as Name-v0, or module:Name-v0 where importing module "
        "registers it.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments of the environment, such as {size: 4}.")


class ToolsSettings(AdaptedSettings):
    kind: Literal["tools"] = "tools"
    toolset: str = Field(
        "r3l.environments.tools.warehouse:Warehouse",
        description="Class of the functions and their tasks, as module:Class.",
    )
    tools_shown: Literal["template", "prompt"] = Field(
        "template",
        description=(
            "Where the tools are shown. template: by the policy's chat template, results in the role tool; prompt: "
            "in the system prompt, results in tags, for templates that know no tools."
        ),
    )


class VerifiersSettings(RangedSettings):
    kind: Literal["verifiers"] = "verifiers"
    env: str = Field("", description="Name of an installed environment of verifiers, the module of its taskset.")
    options: dict[str, Any] = Field({}, description="Settings of its taskset, such as {difficulty: easy}.")
    tools_shown: Literal["template", "prompt"] = Field(
        "template",
        description=(
            "Where the tools are shown if the environment has any. template: by the policy's chat template; "
            "prompt: in the system prompt, for templates that know no tools."
        ),
    )
