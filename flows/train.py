"""The flow `r3l-train`: iterations of one run, one after another. Each is a run of the flow `r3l`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flows import prefect_settings

prefect_settings.apply()

from prefect import flow  # noqa: E402

from flows.evaluate import evaluate  # noqa: E402
from flows.iterate import iterate  # noqa: E402
from flows.logs import log  # noqa: E402
from r3l.config import Config, compose  # noqa: E402

# A display that watches from the same process hears when an iteration begins and what came of it.
Heard = Callable[[dict[str, Any] | None], None]
LISTENERS: dict[str, Heard] = {}


@flow(name="r3l-train", flow_run_name="{config.run}", validate_parameters=True)
def train(config: Config = compose(), iterations: int = 10) -> list[dict[str, Any]]:  # noqa: B008 (a frozen model)
    """Further iterations of a run.

    Args:
        config: as for one iteration; `iteration` is left empty; evaluation.every says after how many iterations to evaluate.
        iterations: how many, 1 or more.
    """
    if iterations < 1:
        raise ValueError(f"iterations={iterations}: expected 1 or more")
    heard = LISTENERS.get(config.run, lambda summary: None)
    done = []
    for number in range(iterations):
        heard(None)
        log().info("iteration %d of %d", number + 1, iterations)
        done.append(iterate(config))
        if config.evaluation.every and (done[-1]["iteration"] + 1) % config.evaluation.every == 0:
            done[-1]["evaluation"] = evaluate(config)
        heard(done[-1])
    return done
