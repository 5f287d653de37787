"""An experiment: methods by seeds on one environment and budget, as a small TOML file in data/experiments."""

import tomllib
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from r3l.config.compose import compose
from r3l.config.model import Config
from r3l.config.section import Section
from r3l.errors import ConfigError
from r3l.lab.study.parts import fill_in

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$"


class Arm(Section):
    """One row of the table: a preset, with settings of its own."""

    name: str = Field(pattern=r"^[^,]+$", description="as it is shown; no comma, `--arms` lists names")
    preset: str = Field(description="a preset of r3l/presets/methods")
    settings: list[str] = Field(default_factory=list, description="key=value")


class Fork(Section):
    """The stored bases of an arm's runs, retried under other settings: a branch of each run, compared stage by stage,
    never trained."""

    name: str = Field(pattern=NAME, description="the branch's name")
    settings: list[str] = Field(min_length=1, description="key=value")


class Question(Section):
    """A further table: SQL over the catalog's views and `cells` (run, arm, seed, rate)."""

    title: str
    sql: str


class Size(Section):
    """The size of an experiment: on a laptop, or as in the paper."""

    model: str = Field(description="a preset of r3l/presets/policies")
    environment: str = Field("", description="a preset of r3l/presets/environments; empty: the experiment's")
    iterations: int = Field(ge=1)
    evaluate_every: int = Field(ge=1)
    seeds: list[int] = Field(min_length=1)
    policies: list[str] = Field(
        default_factory=list, description="starting policies, by seed in turn; empty: the model's"
    )
    rates: list[float] = Field(
        default_factory=list, description="learning rates, the fixed one first; empty: the model's"
    )
    settings: list[str] = Field(default_factory=list, description="key=value, for every arm")
    seconds_per_iteration: float = Field(0.0, ge=0, description="as measured, for the plan; 0: unknown")
    devices: int = Field(0, ge=0, description="GPUs that an iteration keeps busy meanwhile")

    def learning_rates(self) -> list[float | None]:
        """List the learning rates; None is the model's own."""
        return [*self.rates] or [None]


class Cell(NamedTuple):
    """One run: an arm, a seed and a learning rate (None: the model's)."""

    arm: Arm
    seed: int
    rate: float | None
    config: Config


class Experiment(Section):
    name: str = Field(pattern=NAME)
    title: str
    paper: str = Field(description="the table or figure of the paper that it answers to")
    knowledge: str = Field(description="what the starting policy was given: said beside every table")
    prediction: str = Field("", description="what was expected, written before the runs and kept as it was")
    analysis: str = Field("", description="how the runs are to be read, written before them")
    environment: str = Field(description="a preset of r3l/presets/environments")
    runs: str = Field(
        "", pattern=f"^$|{NAME}", description="beginning of the runs' names: experiments with the same one share runs"
    )
    against: str = Field("", description="arm that all others are held against at equal turns; empty: none")
    level: float = Field(0.5, gt=0, le=1, description="the success rate that iterations and turns are counted to")
    arms: list[Arm] = Field(min_length=1)
    forks: list[Fork] = Field(default_factory=list, description="every run is forked so, from `retries` to `distilled`")
    forked_iterations: int = Field(4, ge=1, description="the first so many iterations are forked")
    questions: list[Question] = Field(default_factory=list)
    sizes: dict[str, Size]

    def ours(self, run: Container[str] | None = None) -> str:
        """Name the arm that the experiment is about, of those that were run (None: of all): R3L as the paper has it,
        else the first."""
        names = [arm.name for arm in self.arms if run is None or arm.name in run]
        return "R3L" if "R3L" in names else names[0]

    def cells(self, size: str) -> list[Cell]:
        """List every run, whole comparisons first: all arms of a seed. Raise `ConfigError` for a size that the
        experiment has not."""
        if size not in self.sizes:
            raise ConfigError(f"experiment {self.name}: no size {size!r}; it has {', '.join(self.sizes)}")
        of = self.sizes[size]
        beginning = (self.runs or self.name) + ("" if size == "laptop" else f"-{size}")
        own = compose(
            policy=of.model, environment=of.environment or self.environment, method=self.arms[0].preset
        ).training.learning_rate
        return [
            Cell(
                arm,
                seed,
                rate,
                self.config(run_name(beginning, arm.name, seed, None if rate == own else rate), arm, seed, rate, of),
            )
            for rate in of.learning_rates()
            for seed in of.seeds
            for arm in self.arms
        ]

    def config(self, run: str, arm: Arm, seed: int, rate: float | None, size: Size) -> Config:
        assignments = [] if rate is None else [f"training.learning_rate={rate}"]
        if size.policies:
            assignments.append(f"policy.path={size.policies[seed % len(size.policies)]}")
        return compose(
            policy=size.model,
            environment=size.environment or self.environment,
            method=arm.preset,
            seed=seed,
            run=run,
            assignments=[f"evaluation.every={size.evaluate_every}", *assignments, *size.settings, *arm.settings],
        )


def run_name(beginning: str, arm: str, seed: int, rate: float | None = None) -> str:
    """Name the run of a cell: its experiment and size, arm, learning rate and seed. The model's own rate is None, so
    that experiments with and without rates share runs."""
    safe = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in arm.lower()).strip("-")
    return ".".join([beginning, safe, *([] if rate is None else [f"lr{rate:g}"]), f"s{seed}"])


def load_experiment(path: Path) -> Experiment:
    """Read an experiment. What its tables extend is sought in the folder `parts` beside it. Raise `ConfigError` where
    the file is missing or says something that can't be."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text())
        return Experiment.model_validate(fill_in(table, path.parent / "parts"))
    except OSError as error:
        raise ConfigError(f"experiment {path}: {error.strerror}; data/experiments has those that ship") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"experiment {path}: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"experiment {path}: {wrong}") from error


def plan_lines(experiment: Experiment, size: str, cells: list[Cell]) -> list[str]:
    """Say what these cells of a size would run and what they would cost, in lines for people."""
    of = experiment.sizes[size]
    first = cells[0].config
    rollouts = first.rollout.tasks * first.rollout.group_size
    lines = [
        f"{cell.config.run}: {cell.arm.name}, seed {cell.seed}, learning rate {cell.config.training.learning_rate:g}"
        for cell in cells
    ]
    lines.append(
        f"{len(cells)} runs of {of.iterations} iterations, each of {first.rollout.tasks} tasks x N = "
        f"{first.rollout.group_size} "
        f"({rollouts} trajectories at most, {rollouts * first.environment.max_turns} turns), {first.policy.name} on "
        f"{first.environment.kind}; {first.evaluation.tasks} test episodes after every {of.evaluate_every} iterations"
    )
    if of.seconds_per_iteration:
        hours = len(cells) * of.iterations * of.seconds_per_iteration / 3600
        busy = f", {hours * of.devices:.0f} GPU hours" if of.devices else ""
        lines.append(
            f"about {hours:.1f} hours one after another{busy} (at {of.seconds_per_iteration:g} s an iteration)"
        )
    else:
        lines.append("seconds an iteration: not measured")
    return lines
