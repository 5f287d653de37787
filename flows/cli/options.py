"""Options that several commands share. Loaded by every command, so it loads no settings and no store."""

import json
from typing import Annotated

import typer

from r3l.errors import ConfigError

# One rule for all verbs: `--run NAME` names the run, and where a run is all that a verb works on, its first word may.
# A question or a trajectory comes first in `sql`, `why` and `show`: these know `--run` alone.
RunWord = Annotated[str, typer.Argument(metavar="[RUN]", help="name of the run, see `r3l runs`; or --run")]
Run = Annotated[str, typer.Option("--run", help="name of the run, as the argument", metavar="NAME")]
RunOf = Annotated[str, typer.Option("--run", metavar="NAME", help="name of the run; empty: the store's only one")]
Branch = Annotated[str, typer.Option("--branch", help="a branch of the run")]
Root = Annotated[str, typer.Option("--store", help="store; empty: R3L_STORE, else data/runs")]
# What a command leaves out is as the run has it: its newest settings, if it is there.
Preset = Annotated[
    str,
    typer.Option(
        "--preset", help="preset of the method r3l, e.g. paper or released, see `r3l presets` (new run: paper)"
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="method: r3l, grpo, raft, ..., a preset's file, a plug-in's name, or module:Class (new run: r3l)",
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy", help="policy preset, a folder with a transformers model, or its name on the hub (new run: latent)"
    ),
]
EnvironmentName = Annotated[
    str,
    typer.Option(
        "--environment",
        help="environment preset, a preset's file, a plug-in's name, or module:Class (new run: alfworld)",
    ),
]
Engine = Annotated[str, typer.Option("--engine", help="transformers_local, vllm_server, or a plug-in's")]
MACHINES = "preset of a machine: one_gpu, two_nodes, eight_gpus or team_server"
Machine = Annotated[str, typer.Option("--machine", help=f"{MACHINES} (new run: this one)")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="a setting, e.g. rollout.tasks=4; may be repeated; the run keeps it from then on"),
]
Changed = Annotated[
    bool,
    typer.Option(
        "--change", help="let a run that is there go on with another policy, environment or method; events say which"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="show neither display nor figures; errors are still told")]
Verbose = Annotated[bool, typer.Option("--verbose", help="show all figures of the result, not only the first eight")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="port on this machine")]
Direct = Annotated[bool, typer.Option("--direct", help="run without Prefect, which saves some seconds")]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def the_run(word: str, option: str, default: str = "") -> str:
    """Choose the run that the command line names.

    Raises:
        ConfigError: it names none, or two.
    """
    if word and option and word != option:
        raise ConfigError(f"two runs are named, {word!r} and --run {option!r}: leave one out")
    if not (name := word or option or default):
        raise ConfigError("no run is named: give its name, or --run NAME; `r3l runs` lists them")
    return name


def how_much(quiet: bool, verbose: bool) -> None:
    """Raise `ConfigError` where nothing and everything is to be shown."""
    if quiet and verbose:
        raise ConfigError("--quiet and --verbose contradict each other: leave one out")


def at(store: str, assignments: list[str] | None) -> list[str]:
    """Put the store that `--store` names before the assignments."""
    return [*([f"store.root={json.dumps(store)}"] if store else []), *(assignments or [])]
