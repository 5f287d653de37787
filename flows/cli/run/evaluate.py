"""`r3l evaluate`: test episodes with a policy of a run as it was trained, or with a bare model."""

from typing import Annotated

import typer

from flows.cli.options import AsJson, Quiet, Root, Run, at, the_run
from flows.cli.screen.console import say_json
from flows.cli.settings import settings
from r3l.config import Config, load_preset
from r3l.config.compose import assigned
from r3l.errors import ConfigError
from r3l.evaluation.benchmarks import benchmark_named, with_environment

Named = Annotated[str, typer.Option(help="as for `r3l iterate`; empty: as the run was trained")]

Posed = Annotated[
    str,
    typer.Argument(metavar="[RUN]", help="name of the run; a new name evaluates the starting policy; or --run"),
]
SetPosed = Annotated[
    list[str] | None,
    typer.Option("--set", help="a setting, e.g. evaluation.temperature=0; environment.… belongs to the benchmark"),
]


def evaluate(
    word: Posed = "",
    run: Run = "",
    iteration: Annotated[
        int | None,
        typer.Option(help="iteration whose new policy is evaluated; -1: the starting policy; empty: the newest"),
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="benchmark, e.g. alfworld-full, webshop, gsm8k; empty: the run's own environment")
    ] = None,
    answer_format: Annotated[
        str | None, typer.Option("--format", help="answer format for math: answer or boxed")
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(min=1, help="attempts per math problem, reported separately (1)")
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(min=1, help="number of tasks of the test split, sampled with each type in its share (60)"),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="evaluate all tasks of the test split")] = False,
    repeats: Annotated[int | None, typer.Option(min=1, help="episodes per task (1)")] = None,
    preset: Named = "",
    method: Named = "",
    policy: Named = "",
    environment: Named = "",
    engine: Named = "",
    set_: SetPosed = None,
    store: Root = "",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Play test episodes with a policy of a run, or with a bare model, and score them (the flow `r3l-evaluate`)."""
    if whole and tasks is not None:
        raise ConfigError(f"--tasks {tasks} and --whole contradict each other: leave one out")
    scope = {"benchmark": benchmark, "answer_format": answer_format, "attempts": attempts}
    scope |= {"tasks": 0 if whole else tasks, "repeats": repeats}
    assignments = [f"evaluation.{name}={value}" for name, value in scope.items() if value is not None]
    assignments += at(store, set_)
    options = {"preset": preset, "method": method, "policy": policy, "environment": environment}
    config = config_of(the_run(word, run, "demo"), options, engine, assignments, iteration)
    from flows.cli.terminal import run_evaluation

    figures = run_evaluation(config, quiet=quiet or as_json)
    if as_json:
        say_json(figures)


def config_of(run: str, options: dict[str, str], engine: str, assignments: list[str], iteration: int | None) -> Config:
    """Compose the settings that the run was last trained with, what is named or assigned on top. Where a benchmark is
    named, assigned settings of the environment are those of its environment."""
    ours = [text for text in assignments if text.startswith("environment.")]
    others = [text for text in assignments if text not in ours]
    benchmark = str(assigned({}, others).get("evaluation", {}).get("benchmark") or "")
    if benchmark and (environment := options["environment"]):
        kind = benchmark_named(benchmark).environment["kind"]
        if kind != load_preset("environments", environment)["environment"]["kind"]:
            raise ConfigError(
                f"--benchmark {benchmark} is played in {kind}, and --environment {environment} names another: leave "
                "one out"
            )
    if ours and benchmark:
        return with_environment(config_of(run, options, engine, others, iteration), ours)
    return settings(run, **options, engine=engine, assignments=assignments, iteration=iteration, training=False)
