"""Settings of each environment, one class per environment. The paper's numbers are from its section
Experimental Setup."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from r3l.config.environments.adapters import GymnasiumSettings, ToolsSettings, VerifiersSettings
from r3l.config.environments.shared import EnvironmentSettings as EnvironmentSettings
from r3l.config.kinds import Kinds
from r3l.config.numbers import above, number, within
from r3l.config.section import LARGEST, identity_of


class AlfworldSettings(EnvironmentSettings):
    kind: Literal["alfworld"] = "alfworld"
    games: Literal["kitchen", "full", "downloaded"] = Field(
        "kitchen",
        description=(
            "Which games are played. kitchen: small generated rooms (median 7 receptacles and 5 objects) with "
            "four task types; full: generated rooms of the original's size (20 and 43) with all six types; "
            "downloaded: the original games, json_2.1.1."
        ),
    )
    partial: bool = Field(False, description="Accept a folder that holds only a part of the downloaded games.")
    train_games: int = number(200, within(1, 100_000), "Number of generated training games, {}.")
    heldout_games: int = number(100, within(1, 100_000), "Number of generated held-out games, {}.")
    games_seed: int = number(0, within(0, LARGEST), "Seed of the generated games, {}.")
    admissible: bool = Field(False, description="List the admissible commands in each observation.")


DEFAULT_TURNS = {"short": 8, "long": 50}  # of the levels that the general default does not suit
LONG_HOUSEHOLD_TURNS = 32  # the longest of the shortest ways is 29 turns, and things have to be found


class HouseholdSettings(EnvironmentSettings):
    kind: Literal["household"] = "household"
    level: Literal["short", "easy", "standard", "long"] = Field(
        "standard",
        description="Difficulty of the tasks. short: 6 places without doors, two objects, 4 or 6 turns, a short "
        "prompt; easy: 7 places, 4 to 8 turns; standard: 14 places, two objects at times; "
        "long: tasks of 20 turns and more, with late errors that cannot be undone.",
    )
    max_turns: int = number(
        25,
        within(1, 1000),
        "Largest number of turns per episode, {}. Level long needs 32 or more and has 50 by default; level short has "
        "8.",
    )
    train_tasks: int = number(1000, within(1, 100_000), "Number of training tasks, {}.")
    heldout_tasks: int = number(
        200, within(1, 100_000), "Number of held-out tasks, {}. They share no errand with the training tasks."
    )
    tasks_seed: int = number(0, within(0, LARGEST), "Seed of the tasks, {}.")
    end_when_lost: bool = Field(False, description="End the episode as soon as the task can no longer be solved.")

    @model_validator(mode="before")
    @classmethod
    def give_the_level_its_turns(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("level") in DEFAULT_TURNS:
            return {"max_turns": DEFAULT_TURNS[values["level"]], **values}
        return values

    @model_validator(mode="after")
    def refuse_too_few_turns(self) -> HouseholdSettings:
        if self.level == "long" and self.max_turns < LONG_HOUSEHOLD_TURNS:
            raise ValueError(
                f"max_turns={self.max_turns} is too few for level long, whose shortest solutions take 20 to 29 turns: "
                f"give {LONG_HOUSEHOLD_TURNS} or more (50 leaves room to search)"
            )
        return self


class ScienceWorldSettings(EnvironmentSettings):
    kind: Literal["scienceworld"] = "scienceworld"
    max_turns: int = number(30, within(1, 1000), "Largest number of turns per episode, {} (paper: 30).")
    memory_mb: int = number(
        512, within(128, 1_048_576), "Heap of each worker's Java virtual machine in MB, {}.", identity_of()
    )


class WebShopSettings(EnvironmentSettings):
    kind: Literal["webshop"] = "webshop"
    max_turns: int = number(15, within(1, 1000), "Largest number of turns per episode, {} (paper: 15).")
    catalogue: str = Field(
        "synthetic", description="Source of the products: synthetic, or a folder with the original files."
    )
    products: int | None = number(
        None,
        within(1, 10_000_000),
        "Number of products in the catalogue, {}. If empty, 1100 synthetic ones, or all of the files.",
    )
    catalogue_seed: int = number(0, within(0, LARGEST), "Seed of the synthetic catalogue, {}.")
    goals: Literal["auto", "human", "attributes"] = Field(
        "auto",
        description=(
            "Source of the instructions. human: written by people; attributes: made from the products; auto: "
            "human where there are any, otherwise attributes."
        ),
    )
    text_mode: Literal["rich", "plain"] = Field(
        "rich",
        description="How a page becomes text. rich: buttons as [button] X [button_]; plain: parts separated by [SEP].",
    )
    split_rule: Literal["paper", "webshop", "scaled"] = Field(
        "paper",
        description=(
            "Which goals belong to which split. paper: train 0-4095, test 4096-4195; webshop: test 0-499, dev "
            "500-1499, train the rest; scaled: the same in tenths."
        ),
    )
    title_nouns: Literal["auto", "words", "spacy"] = Field(
        "auto",
        description=(
            "How the reward finds the nouns of a title. spacy: by spaCy's English model, as the original does; "
            "words: without a model; auto: by the model where one is installed."
        ),
    )
    action_rule: Literal["original", "released"] = Field(
        "original",
        description=(
            "What follows an action that is impossible. original: the same page again; released: a message that "
            "says why."
        ),
    )


class MathSettings(EnvironmentSettings):
    kind: Literal["math"] = "math"
    max_turns: int = number(3, within(1, 100), "Largest number of attempts per problem, {} (paper: 3).")
    reply_tokens: int = number(4096, within(8, 131072), "Largest number of tokens per reply, {} (paper: 4096).")
    dataset: str = Field(
        "procedural",
        description=(
            "Source of the problems: procedural, dapo, gsm8k, math500, minerva, olympiad, amc23, or the path of a "
            ".jsonl or .parquet file."
        ),
    )
    kinds: str = Field(
        "chain_sum,simple_equations,gcd,gsm_symbolic",
        description="Kinds of problems of reasoning-gym, separated by commas. Only for dataset procedural.",
    )
    train_tasks: int = number(1000, within(1, 100_000), "Number of procedural training tasks, {}.")
    heldout_tasks: int = number(200, within(1, 100_000), "Number of procedural held-out tasks, {}.")
    tasks_seed: int = number(
        0, within(0, LARGEST), "Seed of the procedural tasks, and of the held-out rows of a training set, {}."
    )
    answer_format: Literal["answer", "boxed"] = Field(
        "answer", description="How a reply marks its answer: <answer>...</answer> or \\boxed{...}."
    )
    grade_timeout_s: float = number(
        1,
        above(0, 3600),
        "Seconds of processor time that the grader may take per answer, {}. An ordinary answer takes at most 0.3.",
    )


ENVIRONMENT_KINDS = Kinds(
    "environment",
    EnvironmentSettings,
    (
        AlfworldSettings,
        HouseholdSettings,
        ScienceWorldSettings,
        WebShopSettings,
        MathSettings,
        ToolsSettings,
        GymnasiumSettings,
        VerifiersSettings,
    ),
)
AnyEnvironment = Annotated[EnvironmentSettings, ENVIRONMENT_KINDS]
