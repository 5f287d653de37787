"""The flow `r3l-evaluate`: any policy of a run on a test split, at the test temperature."""

from typing import Any, cast

from prefect import Flow, flow
from prefect.artifacts import create_table_artifact

from flows import artifacts
from flows.artifacts import artifact_key
from flows.cancellation import run_attended, watched_flow
from flows.tasks import RUNNER, runner
from r3l.config import Config
from r3l.evaluation.benchmarks import pose
from r3l.evaluation.form import EvaluationForm
from r3l.evaluation.score import Scores, by_type, score
from r3l.exploration.progress import Progress
from r3l.pipeline import evaluation, preflight
from r3l.pipeline.logs import log
from r3l.pipeline.settings.continuing import compose_for_run
from r3l.pipeline.summary import summarise
from r3l.pipeline.tools import Tools
from r3l.pipeline.tracking.feed import feed
from r3l.store.layout import StageRef
from r3l.store.stage import Store

# Columns of the first row that the result has too: they are the same in all of an evaluation.
KEPT = (
    "benchmark",
    "format",
    "protocol",
    "policy",
    "evaluation",
    "data",
    "split",
    "tasks",
    "of_tasks",
    "repeats",
    "seed",
)


@flow(name="r3l-evaluate", flow_run_name="evaluate {config.run}", task_runner=RUNNER, validate_parameters=True)
def evaluate(config: EvaluationForm = EvaluationForm()) -> Scores:  # noqa: B008 (frozen; what the form shows)
    """Play test episodes with a policy of the run and score them.

    Args:
        config: whose policy, on which benchmark. `iteration` is the one whose new policy is evaluated: empty the
            newest,
            -1 the start.
    """
    return run_attended(lambda: evaluation_of(compose_for_run(config.asked(), training=False)))


def with_watcher(progress: Progress | None, checked: bool = True, tools: Tools | None = None) -> Flow[..., Scores]:
    """Give the flow to a caller in the same process that watches it, or that has an engine and workers which outlive
    it.

    Args:
        checked: whether the preflight has been passed.
    """
    return watched_flow(
        evaluate,
        lambda config: run_attended(
            lambda: evaluation_of(compose_for_run(config.asked(), training=False), progress, checked, tools)
        ),
    )


def evaluation_of(
    config: Config, progress: Progress | None = None, checked: bool = False, tools: Tools | None = None
) -> Scores:
    """Do what the flow does."""
    test = pose(config)
    store = Store.open(test.config.store.root) if checked else preflight.ready(test.config, training=False)
    ref = evaluation.evaluate(
        test, store, evaluation.evaluated_iteration(config, store), progress=progress, runner=runner(), tools=tools
    )
    scores = score_evaluation(config, ref, store)
    if any(one.stage == "updates" for one in store.stages(config.run, config.branch, ref.iteration)):
        artifacts.show_page(store, config, summarise(store, config.run, config.branch, ref.iteration), scores)
    log().info(
        "%s, policy of iteration %d, %s: %d of %d episodes solved, %.1f %% [%.1f to %.1f]",
        *(config.run, ref.iteration, scores["posed"], scores["solved"], scores["episodes"]),
        *(100 * scores[name] for name in ("rate", "low", "high")),
    )
    return scores | {"trackers": feed(config, store)}


def score_evaluation(config: Config, ref: StageRef, store: Store) -> Scores:
    """Count the score, in all and by task type, as an artifact and as the result."""
    rows = store.read(ref, "evaluations").to_pylist()
    tasks = [row["task_id"] for row in rows]
    whole = score([(row["success"], row["reward"]) for row in rows], tasks)
    types = by_type(((row["task_type"], row["success"], row["reward"]) for row in rows), tasks)
    table = [
        {
            "task type": name,
            "solved": one.solved,
            "episodes": one.episodes,
            "rate": f"{one.rate:.1%}",
            "95 %": f"{one.low:.1%} – {one.high:.1%}",
            "mean reward": f"{one.reward:.3f}",
        }
        for name, one in [*types.items(), ("all", whole)]
    ]
    terms = ", ".join(filter(None, (rows[0][name] for name in ("benchmark", "format", "protocol"))))
    sample = f"{rows[0]['tasks']:,} of {rows[0]['of_tasks']:,} tasks, {rows[0]['data']}"
    create_table_artifact(
        table=table,
        key=f"{artifact_key(config.run, config.branch)}-evaluation",
        description=f"{whole.rate:.0%} of {terms}, policy of iteration {ref.iteration}; {sample}",
    )
    broken_ids = [row["trajectory_id"] for row in rows if row["status"] in {"environment_error", "engine_error"}]
    scores: dict[str, Any] = {"run": config.run, "branch": config.branch, "iteration": ref.iteration}
    scores |= {name: rows[0][name] for name in KEPT}
    scores |= {
        "posed": terms,
        "sample": sample,
        "solved": whole.solved,
        "episodes": whole.episodes,
        "rate": whole.rate,
        "low": whole.low,
        "high": whole.high,
        "table": table,
        "broken": broken_ids,
    }
    return cast(Scores, scores)
