"""Commands that run: `iterate`, `train`, `evaluate`, `replay`, `play`."""

from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.options import (
    AsJson,
    Branch,
    Changed,
    Direct,
    Engine,
    EnvironmentName,
    Machine,
    Method,
    Policy,
    Preset,
    Quiet,
    Root,
    Run,
    RunWord,
    Set,
    Verbose,
    at,
    how_much,
    the_run,
)
from flows.cli.screen.console import say, say_json, screen
from r3l.config import Config
from r3l.config.compose import POLICY
from r3l.errors import ConfigError
from r3l.store.stage import Store


def iterate(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "",
    method: Method = "",
    policy: Policy = "",
    environment: EnvironmentName = "",
    engine: Engine = "",
    machine: Machine = "",
    iteration: Annotated[int | None, typer.Option(help="number of the iteration; empty: the run's next one")] = None,
    branch: Branch = "",
    direct: Direct = False,
    set_: Set = None,
    change: Changed = False,
    store: Root = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run one training iteration: the flow `r3l`, or its stages without Prefect. A run that is there goes on with the
    settings of its newest iteration; what is given here comes on top, from this iteration on."""
    from flows.cli.settings import settings
    from flows.cli.terminal import run_iteration

    how_much(quiet, verbose)
    config = settings(
        the_run(word, run, "demo"),
        preset,
        method,
        policy,
        environment,
        engine,
        at(store, set_),
        iteration=iteration,
        branch=branch or None,
        machine=machine,
        change=change or None,
    )
    summary = run_iteration(config, quiet=quiet or as_json, verbose=verbose, prefect=not direct)
    if as_json:
        say_json(summary)


def train(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "",
    method: Method = "",
    policy: Policy = "",
    environment: EnvironmentName = "",
    engine: Engine = "",
    machine: Machine = "",
    iterations: Annotated[int, typer.Option(min=1, help="number of further iterations")] = 10,
    evaluate_every: Annotated[
        int | None,
        typer.Option(min=0, help="number of iterations between two evaluations; 0: no evaluation (new run: 0)"),
    ] = None,
    until: Annotated[
        str, typer.Option(help="end once an evaluation reaches it, e.g. 'success>=0.6', or low>=0.6: its 95 % interval")
    ] = "",
    return_after: Annotated[
        int, typer.Option(min=0, help="go on from the best policy after so many far worse ones, on branch return")
    ] = 0,
    set_: Set = None,
    change: Changed = False,
    store: Root = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run further iterations of a run, one after another (the flow `r3l-train`). A run that is there goes on with the
    settings of its newest iteration; what is given here comes on top, from the first iteration on."""
    from flows.cli.settings import settings
    from flows.cli.terminal import run_training
    from r3l.pipeline.returning import compose_line

    every = [] if evaluate_every is None else [f"evaluation.every={evaluate_every}"]
    how_much(quiet, verbose)
    presets = (the_run(word, run, "demo"), preset, method, policy, environment, engine)
    asked = [*every, *at(store, set_)]
    config = compose_line(
        lambda branch: settings(*presets, asked, machine=machine, branch=branch or None, change=change or None),
        return_after,
    )
    summaries = run_training(config, iterations, until, return_after, quiet=quiet or as_json, verbose=verbose)
    if as_json:
        say_json(summaries)


Named = Annotated[str, typer.Option(help="as for `r3l iterate`; empty: as the run was trained")]


Posed = Annotated[
    str, typer.Argument(metavar="[RUN]", help="name of the run; a new name evaluates the starting policy; or --run")
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
    from flows.cli.settings import settings
    from r3l.config import load_preset
    from r3l.config.compose import assign
    from r3l.evaluation.benchmarks import benchmark_named, with_environment

    ours = [text for text in assignments if text.startswith("environment.")]
    others = [text for text in assignments if text not in ours]
    benchmark = str(assign({}, others).get("evaluation", {}).get("benchmark") or "")
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


def replay(
    iteration: Annotated[int, typer.Option(help="number of the iteration")],
    word: RunWord = "",
    run: Run = "",
    from_: Annotated[str, typer.Option("--from", help="first stage to recompute")] = "credit",
    to: Annotated[str, typer.Option("--to", help="last stage to recompute")] = "updates",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="a setting to change; without any, the replay shows that nothing changes"),
    ] = None,
    branch: Annotated[str, typer.Option(help="name of the new branch; empty: replay-1, replay-2, ...")] = "",
    source: Annotated[str, typer.Option(help="branch to replay; empty: the run itself")] = "",
    store: Root = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="compare all rows, bits and all; exit code 1 where one differs")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Recompute stages of a stored iteration into a branch (the flow `r3l-replay`); the original never changes."""
    from flows.cli.screen.figures import show_difference
    from flows.serving import tied
    from r3l.config.compose import allow_named, assign
    from r3l.judge.compare import played_again
    from r3l.pipeline.replay import replay_config
    from r3l.pipeline.workbench import Replay

    run = the_run(word, run)
    run_store, request = Store.open(store), Replay(source, from_, to)
    allow_named(assign({}, set_ or []))
    replay_config(run_store, run, iteration, request, set_ or [], branch)  # what is wrong is said before Prefect starts
    console = screen(stderr=True)
    with console.status("replaying") if console.is_terminal and not as_json else nullcontext():
        from flows.cli.terminal import on_prefect

        tied.begin()
        from flows.replay import replay as flow

        with on_prefect():
            result = flow(run, iteration, from_, to, set_ or [], branch, source, store)
    again = played_again(run_store, run, iteration, source, result["branch"]) if verify else []
    if as_json:
        say_json({**result, "again": [asdict(stage) for stage in again]} if verify else result)
    elif verify:
        say("\n".join([f"replayed into branch {result['branch']}", *map(str, again)]))
    else:
        show_difference(screen(), result)
    raise typer.Exit(1 if any(stage.first for stage in again) else 0)


def play(
    environment: Annotated[
        str,
        typer.Argument(metavar="ENV", help="environment preset, a preset's file, a plug-in's name, or module:Class"),
    ],
    task: Annotated[str, typer.Option(help="number of the task in its split, or its id")] = "0",
    split: Annotated[str, typer.Option(help="split of the task; empty: environment.split")] = "",
    as_policy: Annotated[
        bool,
        typer.Option(
            "--as-policy", help="show the text of the token ids that the policy is given; type its whole reply"
        ),
    ] = False,
    policy: Policy = POLICY,
    set_: Set = None,
) -> None:
    """Play a task by hand: see what a policy sees, its rewards and admissible actions, and roll back."""
    from flows.cli.screen.by_hand import Player, chat_of, task_named
    from flows.cli.settings import settings
    from r3l.environments.kinds import make_world, tasks_of
    from r3l.environments.workers.pool import WorldPool
    from r3l.exploration.by_hand import ByHand
    from r3l.pipeline.preflight import check_packages

    config = settings("play", "paper", "r3l", policy, environment, "", set_)
    check_packages(config, training=False)
    world = make_world(config.environment)
    chat = chat_of(config, world) if as_policy else None
    with closing(WorldPool(config.environment, workers=1)) as pool:
        chosen_task = task_named(task, tasks_of(config.environment, split or config.environment.split))
        Player(ByHand(world, pool, config.environment, chosen_task, chat)).play()
