"""The flow `r3l`: one training iteration. It knows stages; the method's plan says what is sampled."""

from prefect import Flow, flow
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import artifacts
from flows.cancellation import run_attended, watched_flow
from flows.placement.placed import PrefectPlacement
from flows.placement.remote_jobs import check_placement
from flows.tasks import RUNNER, runner
from r3l.config import Config
from r3l.config.form import Form
from r3l.errors import R3LError
from r3l.exploration.progress import Progress
from r3l.pipeline import preflight
from r3l.pipeline.iteration import open_iteration, run_stages, the_iteration
from r3l.pipeline.logs import log
from r3l.pipeline.settings.continuing import compose_for_run
from r3l.pipeline.summary import Summary
from r3l.pipeline.tools import Tools
from r3l.pipeline.tracking.feed import feed
from r3l.store.stage import Store


def _flow_run_name() -> str:
    """E.g. ``demo iteration=7``: a run without an iteration number is named after the one that it takes."""
    form = Form.model_validate(flow_run.parameters["config"])
    try:
        config = compose_for_run(form.asked())
        return (
            f"{config.run}{config.branch and '/'}{config.branch} "
            f"iteration={the_iteration(config, Store.open(config.store.root))}"
        )
    except R3LError:
        return form.run  # what is wrong is said by the preflight, as the run's failure


@flow(name="r3l", flow_run_name=_flow_run_name, task_runner=RUNNER, validate_parameters=True)
def iterate(config: Form = Form()) -> Summary:  # noqa: B008 (frozen; what the form shows)
    """Run one R3L iteration: sample, reflect, retry from the pivot, stitch, assign credit, update. Every stage is a
    table.

    Args:
        config: what is run. A section is a preset, or all its settings in another tab; what is left open is as the run
            has it.

    Returns:
        The iteration's figures, by column of the view `iterations`.
    """
    return as_state(run_attended(lambda: iteration_of(compose_for_run(config.asked()))))


def as_state(summary: Summary) -> Summary:
    """Pass on the figures; where no step was taken, a state that says so: the list of runs shows its message."""
    if isinstance(summary, dict) and summary["no_step"]:
        return Completed(data=summary, message=summary["no_step"])  # type: ignore[return-value]
    return summary


def with_watcher(
    progress: Progress | None, checked: bool = True, tools: Tools | None = None, more: bool = False
) -> Flow[..., Summary]:
    """Give the flow to a caller in the same process that watches it, or that has an engine and workers which outlive
    it.

    Args:
        checked: whether the preflight has been passed.
        more: as of `run_stages`.
    """
    return watched_flow(
        iterate,
        lambda config: as_state(
            run_attended(lambda: iteration_of(compose_for_run(config.asked()), progress, checked, tools, more))
        ),
    )


def iteration_of(
    config: Config,
    progress: Progress | None = None,
    checked: bool = False,
    tools: Tools | None = None,
    more: bool = False,
) -> Summary:
    """Do what the flow does."""
    store = Store.open(config.store.root) if checked else preflight.ready(config)
    check_placement(config.placement)
    iteration = the_iteration(config, store)
    with open_iteration(
        config, store, iteration, progress=progress, runner=runner(), placement=PrefectPlacement(), tools=tools
    ) as bench:
        refs = run_stages(bench, more)
    summary = artifacts.publish(bench, refs)
    if summary["no_step"]:
        log().warning("%s", summary["no_step"])
    for advice in summary.get("alarms", ()):
        log().warning("alarm: %s", advice)
    log().info("%s", artifacts.closing_line(summary))
    return summary | {"trackers": feed(config, store)}
