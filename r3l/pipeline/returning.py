"""A training that has fallen goes back to its best policy: on a branch, so that the fall stays beside it and each line
keeps its own account."""

from collections.abc import Callable

from r3l.config import Config
from r3l.evaluation.score import RETURN
from r3l.pipeline.logs import log
from r3l.store.catalog import connect
from r3l.store.stage import Store

# The iteration with the best held-out evaluation, where each of the newest ones rings the alarm on held-out success, or
# lies below the bound that the run's own line fell under.
FALLEN = """
WITH rung AS (FROM lines.alarms WHERE alarm = 'held-out success'),
evaluated AS (
    SELECT iteration, figure, iteration IN (SELECT iteration FROM rung WHERE branch = $branch)
        OR $branch <> '' AND figure < (SELECT max(bound) FROM rung WHERE branch = '') AS low
    FROM lines.alarm_figures WHERE alarm = 'held-out success' AND branch = $branch),
newest AS (FROM evaluated ORDER BY iteration DESC LIMIT $evaluations)
SELECT arg_max(iteration, (figure, -iteration)) FROM evaluated
HAVING (SELECT count(*) FILTER (low) FROM newest) = $evaluations
"""


def best_before_fall(store: Store, config: Config, evaluations: int) -> int | None:
    """Find the iteration with the best held-out evaluation (-1: the starting policy's) where the newest so many are all
    more than two standard errors below the best that they had before them; None: the line has not fallen."""
    if not evaluations or config.run not in store.runs():
        return None
    with connect(store, [config.run], question=FALLEN) as connection:
        row = connection.execute(FALLEN, {"branch": config.branch, "evaluations": evaluations}).fetchone()
    return row[0] if row else None


def line_to_train(store: Store, config: Config, evaluations: int) -> Config | None:
    """Choose the line that a training goes on with: the run's own, or, once that has fallen, the branch `return`. That
    begins behind the best policy, with other tasks and samples (`seed` + 1): with the same ones it would fall again,
    bit for bit. None: the branch has fallen, too."""
    if (best := best_before_fall(store, config, evaluations)) is None:
        return config
    if config.branch:
        log().warning(
            "branch %s has fallen, too, and training ends; start another run, with a lower training.learning_rate",
            config.branch,
        )
        return None
    begun = RETURN in store.branches(config.run)
    line = config.model_copy(
        update={"branch": RETURN, "seed": config.seed + 1, "iteration": None if begun else best + 1}
    )
    log().warning("held-out success has fallen: on branch %s, training goes on from iteration %d", RETURN, best)
    return line_to_train(store, line, evaluations) if begun else line


def compose_line(compose: Callable[[str], Config], evaluations: int) -> Config:
    """Compose the settings of a training: where it goes on with the branch `return`, on top of that branch's own.

    Args:
        compose: composes what is asked for on top of the settings of a branch; empty: of the line that is asked for.
    """
    config = compose("")
    if evaluations <= 0 or config.branch:
        return config
    store = Store.open(config.store.root)
    begun = RETURN in store.branches(config.run)
    return compose(RETURN) if begun and best_before_fall(store, config, evaluations) is not None else config
