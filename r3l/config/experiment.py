"""An experiment: methods by seeds on one environment and budget, as a small TOML file in data/experiments."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from r3l.config.compose import compose
from r3l.config.model import Config
from r3l.config.section import Section
from r3l.errors import ConfigError


class Arm(Section):
    """One row of the table: a preset, with settings of its own."""

    name: str = Field(description="as it is shown")
    preset: str = Field(description="a preset of r3l/presets/methods")
    settings: list[str] = Field(default_factory=list, description="key=value")


class Size(Section):
    """How large: the same experiment on a laptop, or as the paper ran it."""

    model: str = Field(description="a preset of r3l/presets/models")
    iterations: int = Field(ge=1)
    evaluate_every: int = Field(ge=1)
    seeds: list[int] = Field(min_length=1)
    settings: list[str] = Field(default_factory=list, description="key=value, for every arm")


class Experiment(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$")
    title: str
    paper: str = Field(description="the table or figure of the paper that it answers to")
    knowledge: str = Field(description="what the starting policy was given: said beside every table")
    environment: str = Field(description="a preset of r3l/presets/environments")
    arms: list[Arm] = Field(min_length=1)
    sizes: dict[str, Size]

    def cells(self, size: str) -> list[tuple[Arm, int, Config]]:
        """(arm, seed, settings) of every run. Raises `ConfigError` for a size that the experiment has not."""
        if size not in self.sizes:
            raise ConfigError(f"experiment {self.name}: no size {size!r}; it has {', '.join(self.sizes)}")
        of = self.sizes[size]
        return [(arm, seed, self.config(arm, seed, of)) for seed in of.seeds for arm in self.arms]

    def config(self, arm: Arm, seed: int, size: Size) -> Config:
        assignments = [f"evaluation.every={size.evaluate_every}", *size.settings, *arm.settings]
        return compose(model=size.model, environment=self.environment, method=arm.preset, run=run_name(self.name, arm.name, seed),
                       seed=seed, assignments=assignments)


def run_name(experiment: str, arm: str, seed: int) -> str:
    """The run of a cell: its experiment, arm and seed."""
    safe = "".join(letter if letter.isalnum() else "-" for letter in arm.lower()).strip("-")
    return f"{experiment}.{safe}.s{seed}"


def load_experiment(path: Path) -> Experiment:
    """Raises `ConfigError` where the file is missing or says something that can't be."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text())
        return Experiment.model_validate(found)
    except OSError as error:
        raise ConfigError(f"experiment {path}: {error.strerror}; data/experiments has those that ship") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"experiment {path}: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"experiment {path}: {wrong}") from error
