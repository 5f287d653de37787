"""Settings of the environments that are other packages': gymnasium, verifiers; and of tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from r3l.config.environments.shared import EnvironmentSettings
from r3l.config.section import LARGEST


class AdaptedSettings(EnvironmentSettings):
    """What all environments of other packages have."""

    system_prompt: str = Field("", description="System prompt of an episode. If empty, the one that ships.")
    observation_characters: int = Field(
        8000,
        ge=100,
        le=1_000_000,
        description="Largest number of characters of an observation, 100 to 1000000. The middle of a longer one is "
        "left out.",
    )
    train_tasks: int = Field(1000, ge=1, le=100_000, description="Number of training tasks, 1 to 100000.")
    heldout_tasks: int = Field(200, ge=1, le=100_000, description="Number of held-out tasks, 1 to 100000.")
    tasks_seed: int = Field(0, ge=0, le=LARGEST, description="Seed of the tasks, 0 to 9223372036854775807.")


class RangedSettings(AdaptedSettings):
    """What those have whose rewards may be any numbers."""

    lowest_reward: float = Field(
        0.0,
        ge=-1_000_000_000,
        le=1_000_000_000,
        description=(
            "Sum of an episode's rewards that becomes reward 0, -1000000000 to 1000000000. A lower sum fails "
            "the attempt."
        ),
    )
    highest_reward: float = Field(
        1.0,
        ge=-1_000_000_000,
        le=1_000_000_000,
        description=(
            "Sum of an episode's rewards that becomes reward 1 and counts as a success, -1000000000 to 1000000000. A "
            "higher sum fails the attempt."
        ),
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
