"""The flow `r3l-train`: iterations of one run, one after another. Each is a run of the flow `r3l`."""

from contextlib import closing, nullcontext
from typing import Protocol

from prefect import Flow, flow

from flows import evaluate as evaluation_flow
from flows import iterate as iteration_flow
from flows.cancellation import run_attended, watched_flow
from r3l.config import Config
from r3l.config.form import Form
from r3l.errors import ConfigError
from r3l.evaluation.score import Goal, check_return
from r3l.exploration.progress import Progress
from r3l.pipeline.iteration import the_iteration
from r3l.pipeline.logs import log
from r3l.pipeline.returning import compose_line, line_to_train
from r3l.pipeline.settings.continuing import compose_for_run
from r3l.pipeline.summary import Summary
from r3l.pipeline.tools import Tools
from r3l.store.figures import standing_alarms
from r3l.store.stage import Store


class Watcher(Protocol):
    """A caller in the same process that watches the iterations and has done the preflight."""

    def begins(self, config: Config) -> Progress:
        """Note that an iteration of these settings begins. The result counts its progress."""

    def ended(self, summary: Summary) -> None:
        """Note that an iteration ended with these figures."""


@flow(name="r3l-train", flow_run_name="{config.run}", validate_parameters=True)
def train(config: Form = Form(), iterations: int = 10, until: str = "", return_after: int = 0) -> list[Summary]:  # noqa: B008 (a frozen model)
    """Run further iterations of a run.

    Args:
        config: as for one iteration; `iteration` is left empty; evaluation.every says after how many iterations to
            evaluate.
        iterations: how many, 1 or more.
        until: a goal that ends it earlier, such as success>=0.6 of a held-out evaluation.
        return_after: number of evaluations in a row, each more than two standard errors below the best one, after which
            training goes on from the best policy, on the branch `return`. 0: never.
    """
    if iterations < 1:
        raise ValueError(f"iterations={iterations}: expected 1 or more")
    return run_attended(
        lambda: iterations_of(composed(config, return_after), iterations, until=until, return_after=return_after)
    )


def with_watcher(watcher: Watcher, tools: Tools | None = None) -> Flow[..., list[Summary]]:
    """Give the flow to a caller that watches it, or that has an engine and workers which outlive it."""
    return watched_flow(
        train,
        lambda config, iterations, until, return_after: run_attended(
            lambda: iterations_of(composed(config, return_after), iterations, watcher, tools, until, return_after)
        ),
    )


def composed(form: Form, return_after: int) -> Config:
    asked = form.asked()
    return compose_line(lambda branch: compose_for_run(asked.on(branch) if branch else asked), return_after)


def iterations_of(
    config: Config,
    iterations: int,
    watcher: Watcher | None = None,
    tools: Tools | None = None,
    until: str = "",
    return_after: int = 0,
) -> list[Summary]:
    """Do what the flow does. One engine serves all iterations, because servers that the run starts take minutes."""
    if config.iteration is not None:
        raise ConfigError(f"iteration={config.iteration}: a training runs further iterations; leave it empty")
    goal = Goal.of(until, config)
    check_return(return_after, config)
    store, summaries = Store.open(config.store.root), list[Summary]()
    line = line_to_train(store, config, return_after)
    with nullcontext(tools) if tools else closing(Tools()) as tools:
        for number in range(iterations):
            if line is None:
                break
            progress, preflight_done = watcher.begins(line) if watcher else None, watcher is not None
            log().info("iteration %d of %d", number + 1, iterations)
            may_end = bool(goal or return_after) and line.evaluation.follows(the_iteration(line, store))
            more = number + 1 < iterations and not may_end
            iterate = iteration_flow.with_watcher(progress, preflight_done, tools, more)
            summaries.append(iterate(Form.model_validate(line)))
            line = line.model_copy(update={"iteration": None})
            if evaluated := line.evaluation.follows(summaries[-1]["iteration"]):
                summaries[-1]["evaluation"] = evaluation_flow.with_watcher(progress, preflight_done, tools)(line)
                # its held-out success may ring, or end an alarm
                summaries[-1]["alarms"] = standing_alarms(store, line.run, line.branch)
            if watcher:
                watcher.ended(summaries[-1])
            if goal and evaluated and goal.is_reached(summaries[-1]["evaluation"]):
                log().info("%s is reached after iteration %d", until, summaries[-1]["iteration"])
                break
            if evaluated:
                line = line_to_train(store, line, return_after)
    return summaries
