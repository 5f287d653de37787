"""Settings of each environment: one member of a union each. The paper's numbers stand in its section Experimental
Setup."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from r3l.config.section import Member, any_of, identity_of


class EnvironmentSettings(Member):
    IDENTITY_OF = ("tasks", "base", "oracle_pivots", "reflections", "retries", "evaluations")

    split: str = Field("train", description="the split that training tasks are drawn from")
    task_types: tuple[str, ...] = Field(
        (), description="only tasks of these types, in training and evaluation; empty: all"
    )
    max_turns: int = Field(25, ge=1, le=1000, description="turns of an episode, 1 to 1000")
    reply_tokens: int = Field(512, ge=8, le=32768, description="limit of a reply, 8 to 32768 (paper: 512)")
    bad_reply: Literal["continue", "end"] = Field(
        "continue", description="a malformed reply costs a turn, or ends the episode"
    )
    malformed_reward: float = Field(
        0.0, ge=-1, le=0, description="reward of an episode that a malformed reply ended, -1 to 0"
    )
    workers: int = Field(2, ge=1, le=512, description="worker processes, 1 to 512", json_schema_extra=identity_of())
    step_timeout_s: float = Field(
        60,
        gt=0,
        description="seconds a worker may take for one call before it is replaced",
        json_schema_extra=identity_of(),
    )
    data_root: str = Field(
        "data/tasks", description="where the environment's tasks are kept", json_schema_extra=identity_of()
    )


class AlfworldSettings(EnvironmentSettings):
    kind: Literal["alfworld"] = "alfworld"
    games: Literal["kitchen", "full", "downloaded"] = Field(
        "kitchen",
        description="kitchen: small generated rooms (median 7 receptacles, 5 objects), four task types; full: generated, as "
        "large as the original's (20 and 43), all six types; downloaded: json_2.1.1",
    )
    partial: bool = Field(False, description="play a folder that has only a part of the downloaded games")
    train_games: int = Field(200, ge=1, description="generated training games, 1 or more")
    heldout_games: int = Field(100, ge=1, description="generated held-out games, 1 or more")
    games_seed: int = Field(0, ge=0, description="seed of the generated games, 0 or more")
    admissible: bool = Field(False, description="list the admissible commands in each observation")


LONG_HOUSEHOLD_TURNS = 32  # the longest of the shortest ways is 29 turns, and things have to be found


class HouseholdSettings(EnvironmentSettings):
    kind: Literal["household"] = "household"
    level: Literal["easy", "standard", "long"] = Field(
        "standard", description="long: 20 turns and more, late unrecoverable errors"
    )
    max_turns: int = Field(
        25, ge=1, le=1000, description="turns of an episode, 1 to 1000 (level long: 32 or more, 50 where not given)"
    )
    train_tasks: int = Field(1000, ge=1, le=100_000, description="training tasks, 1 to 100000")
    heldout_tasks: int = Field(
        200, ge=1, le=100_000, description="held-out tasks, 1 to 100000; they share no errand with training"
    )
    tasks_seed: int = Field(0, ge=0, description="seed of the tasks, 0 or more")
    end_when_lost: bool = Field(False, description="end the episode once the task can't be won any more")

    @model_validator(mode="before")
    @classmethod
    def give_long_tasks_room(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("level") == "long":
            return {"max_turns": 50, **values}
        return values

    @model_validator(mode="after")
    def refuse_too_few_turns(self) -> HouseholdSettings:
        if self.level == "long" and self.max_turns < LONG_HOUSEHOLD_TURNS:
            raise ValueError(
                f"max_turns={self.max_turns} is too few for level long, whose tasks take 20 to 29 turns with everything "
                f"in sight: give {LONG_HOUSEHOLD_TURNS} or more (50 leaves room to search)"
            )
        return self


class ScienceWorldSettings(EnvironmentSettings):
    kind: Literal["scienceworld"] = "scienceworld"
    max_turns: int = Field(30, ge=1, le=1000, description="turns of an episode, 1 to 1000 (paper: 30)")
    memory_mb: int = Field(
        512, ge=128, description="heap of a worker's Java machine in MB, 128 or more", json_schema_extra=identity_of()
    )


class WebShopSettings(EnvironmentSettings):
    kind: Literal["webshop"] = "webshop"
    max_turns: int = Field(15, ge=1, le=1000, description="turns of an episode, 1 to 1000 (paper: 15)")
    catalogue: str = Field(
        "synthetic", description="synthetic, or a folder with the original files, or http:// of a server"
    )
    products: int | None = Field(
        None, ge=1, description="products of the catalogue; empty: 1100 synthetic ones, or all of the files"
    )
    catalogue_seed: int = Field(0, ge=0, description="seed of the synthetic catalogue, 0 or more")
    goals: Literal["auto", "human", "attributes"] = Field(
        "auto",
        description="human: instructions that people wrote; attributes: made from products; auto: human where there are any",
    )
    text_mode: Literal["rich", "plain"] = Field("rich", description="rich: [button] X [button_]; plain: [SEP]")
    split_rule: Literal["paper", "webshop", "scaled"] = Field(
        "paper",
        description="paper: train 0-4095, test 4096-4195; webshop: test 0-499, dev 500-1499, train the rest; scaled: tenths",
    )
    title_nouns: Literal["auto", "words", "spacy"] = Field(
        "auto",
        description="how a title's nouns are found for the reward; spacy: by its English model, as the original; words: without; "
        "auto: by the model where one is installed",
    )
    action_rule: Literal["original", "released"] = Field(
        "original", description="original: the same page again after an action that can't be done; released: told why"
    )
    server_goals: int = Field(12087, ge=1, description="goals that a server has (the original's human goals: 12087)")


class MathSettings(EnvironmentSettings):
    kind: Literal["math"] = "math"
    max_turns: int = Field(3, ge=1, le=100, description="attempts, 1 to 100 (paper: 3)")
    reply_tokens: int = Field(4096, ge=8, le=131072, description="limit of a reply, 8 to 131072 (paper: 4096)")
    dataset: str = Field(
        "procedural", description="procedural, dapo, gsm8k, math500, minerva, olympiad, amc23, or a jsonl/parquet file"
    )
    kinds: str = Field(
        "chain_sum,simple_equations,gcd,gsm_symbolic", description="procedural: kinds of reasoning-gym, with commas"
    )
    train_tasks: int = Field(1000, ge=1, le=100_000, description="procedural training tasks, 1 to 100000")
    heldout_tasks: int = Field(200, ge=1, le=100_000, description="procedural held-out tasks, 1 to 100000")
    tasks_seed: int = Field(
        0, ge=0, description="seed of the procedural tasks and of the held-out rows of a training set"
    )
    answer_format: Literal["answer", "boxed"] = Field("answer", description="<answer>...</answer> or \\boxed{...}")
    grade_timeout_s: float = Field(
        1,
        gt=0,
        description="seconds of processor time that the grader may take for one answer (an ordinary one: 0.3 at most)",
    )


AnyEnvironment = Annotated[
    AlfworldSettings | HouseholdSettings | ScienceWorldSettings | WebShopSettings | MathSettings,
    Field(discriminator="kind", json_schema_extra=any_of),
]
