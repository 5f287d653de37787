"""The results of an experiment: from the stored runs, and from kept results for runs that the store no longer has."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from duckdb import DuckDBPyConnection

from r3l.errors import ConfigError
from r3l.lab.study.compare import Spent, Summary, summarise_arm
from r3l.lab.study.experiment import Cell, Experiment
from r3l.lab.study.kept import Answer, Kept, Rows, kept_results
from r3l.store.catalog import connect_to, load_manifests
from r3l.store.query import query
from r3l.store.stage import Store

RATES = """
SELECT run, iteration, avg(success::INT) AS rate, count(*) AS episodes, min(policy) AS policy
FROM (FROM evaluations WHERE branch = '' QUALIFY shard IS NOT DISTINCT
FROM min(shard) OVER (PARTITION BY run, iteration))
GROUP BY run, iteration ORDER BY run, iteration
"""  # the first evaluation of an iteration is the experiment's; those that were made since are others
METRICS = """
WITH played AS (
    SELECT run, iteration, count(*) AS episodes, sum(turns) AS turns, sum(response_tokens) AS tokens
    FROM (SELECT run, iteration, turns, response_tokens FROM base WHERE branch = ''
          UNION ALL SELECT run, iteration, turns - coalesce(pivot_turn, 0), response_tokens FROM retries
          WHERE branch = ''
          UNION ALL SELECT run, iteration, turns - pivot_turn, response_tokens FROM continuations WHERE branch = '')
    GROUP BY run, iteration),
reflected AS (
    SELECT run, iteration, sum(coalesce(response_tokens, len(response_ids))) AS reflection_tokens
    FROM reflections WHERE branch = '' GROUP BY run, iteration)
SELECT run, iteration, episodes::BIGINT AS episodes, turns::BIGINT AS turns, (tokens + coalesce(reflection_tokens,
0))::BIGINT AS tokens,
       stage_seconds AS seconds, base_reward, base_turns, entropy, grad_norm, kl_start, loss, clip_fraction, pivot_mean,
       pivot_fraction,
       retry_improvement, retry_improvement_failed, reward_gain, parse_rate, outcome_accuracy, trained_tokens,
       update_seconds,
       mixed_groups / groups AS mixed
FROM iterations JOIN played USING (run, iteration) LEFT JOIN reflected USING (run, iteration)
WHERE branch = '' ORDER BY run, iteration
"""


@dataclass(frozen=True, slots=True)
class Results:
    """Curves and metrics by run; a summary for every arm and learning rate that has a point; `unfinished` runs are in
    neither.

    policies: the digest of each run's starting policy.
    kept: the runs whose figures are kept ones. Learning rates that have such have kept answers: tables that are gone
        can't be asked.
    """

    experiment: Experiment
    size: str
    cells: list[Cell]
    unfinished: list[str]
    curves: dict[str, dict[int, float]]
    metrics: dict[str, Rows]
    summaries: list[Summary]
    answers: list[Answer]
    test_episodes: int
    policies: dict[str, str]
    kept: list[str]

    def rates_start_apart(self) -> bool:
        """Tell whether a seed's runs began from one policy at one learning rate and from another, or an unknown one, at
        the next."""
        starts = {(cell.seed, self.policies.get(cell.config.run)) for cell in self.cells}
        return len(starts) > len({cell.seed for cell in self.cells})


def read_results(experiment: Experiment, size: str, store: Store, kept: Kept | None = None) -> Results:
    """Read the results. Only complete runs count, because a partial run would be compared unfairly. Iterations after
    the experiment's last one are not read."""
    cells, iterations = experiment.cells(size), experiment.sizes[size].iterations
    stages = [
        one for one in load_manifests(store, [cell.config.run for cell in cells]) if one["iteration"] < iterations
    ]
    with connect_to(store, stages) as connection:
        rates, metric_rows = (query(connection, sql).to_pylist() for sql in (RATES, METRICS))
        curves, metrics = by_run(rates), by_run(metric_rows)
        complete_cells = [
            cell
            for cell in cells
            if len(metrics[cell.config.run]) == iterations
            and max((row["iteration"] for row in curves[cell.config.run]), default=-2)
            >= last_evaluated(experiment, size)
            and {fork.name for fork in experiment.forks} <= set(store.branches(cell.config.run))
        ]
        answers = [
            answer
            for rate in experiment.sizes[size].learning_rates()
            for answer in ask_questions(
                connection, experiment, rate, [cell for cell in complete_cells if cell.rate == rate]
            )
        ]
    names, episodes = [cell.config.run for cell in complete_cells], max((row["episodes"] for row in rates), default=0)
    points = {run: {row["iteration"]: row["rate"] for row in curves[run]} for run in names}
    spending = {run: metrics[run] for run in names}
    results = Results(
        experiment,
        size,
        complete_cells,
        [cell.config.run for cell in cells if cell.config.run not in points],
        points,
        spending,
        summaries(experiment, size, complete_cells, points, spending, episodes),
        answers,
        episodes,
        {run: curves[run][0]["policy"] for run in names},
        [],
    )
    return join_kept(results, kept, cells) if kept else results


def kept_alone(file: Path) -> Results:
    """Read the results of a file that `r3l compare` wrote, without its store. Raise `ConfigError` for another file."""
    kept = kept_results(file)
    if kept.experiment is None:
        raise ConfigError(f"kept results {file}: no such file")
    cells = kept.experiment.cells(kept.size)
    runs = [cell.config.run for cell in cells]
    return join_kept(Results(kept.experiment, kept.size, [], runs, {}, {}, [], [], 0, {}, []), kept, cells)


def ask_questions(
    connection: DuckDBPyConnection, experiment: Experiment, rate: float | None, cells: Sequence[Cell]
) -> list[Answer]:
    """Ask the experiment's questions of these cells: those of a learning rate."""
    if not cells:
        return []
    connection.execute("CREATE OR REPLACE TEMP TABLE cells (run VARCHAR, arm VARCHAR, seed INTEGER, rate DOUBLE)")
    connection.executemany(
        "INSERT INTO cells VALUES (?, ?, ?, ?)", [[cell.config.run, cell.arm.name, cell.seed, rate] for cell in cells]
    )
    return [Answer(one.title, rate, query(connection, one.sql).to_pylist()) for one in experiment.questions]


def join_kept(results: Results, kept: Kept, cells: Sequence[Cell]) -> Results:
    """Join the results and the kept runs that the store no longer has, of all `cells` of the experiment."""
    old = kept.still_hold(
        [cell for cell in cells if cell.config.run not in results.curves],
        {(cell.seed, cell.rate): results.policies[cell.config.run] for cell in results.cells},
    )
    if not old:
        return results
    together = [cell for cell in cells if cell.config.run in {*results.curves, *old}]
    # in one order, wherever a run's figures stand, so that a file changes only where they do
    keepers = {run: results if run in results.curves else kept for run in (cell.config.run for cell in together)}
    curves = {run: keeper.curves[run] for run, keeper in keepers.items()}
    metrics = {run: keeper.metrics[run] for run, keeper in keepers.items()}
    policies = {run: keeper.policies[run] for run, keeper in keepers.items() if run in keeper.policies}
    episodes = max(results.test_episodes, kept.test_episodes)
    rates_gone = {cell.rate for cell in together if cell.config.run in old} & {one.rate for one in kept.answers}
    rates = results.experiment.sizes[results.size].learning_rates()
    answers = sorted(
        [
            *(one for one in results.answers if one.rate not in rates_gone),
            *(grow_answer(one, results.answers) for one in kept.answers if one.rate in rates_gone),
        ],
        key=lambda one: rates.index(one.rate),
    )
    return replace(
        results,
        cells=together,
        unfinished=[run for run in results.unfinished if run not in curves],
        curves=curves,
        metrics=metrics,
        summaries=summaries(results.experiment, results.size, together, curves, metrics, episodes),
        answers=answers,
        test_episodes=episodes,
        kept=old,
        policies=policies,
    )


def grow_answer(kept: Answer, asked_now: Sequence[Answer]) -> Answer:
    """Add to a kept answer the rows of the runs that are stored now: a table by seed grows with the runs, any other
    stays as it was when its runs were there. A seed of both is asked now: its policy may have been made anew."""
    now = next((one.rows for one in asked_now if (one.title, one.rate) == (kept.title, kept.rate)), [])
    if not all("seed" in row for row in [*kept.rows, *now]):
        return kept
    keys = {(row["seed"], row.get("arm")) for row in now}
    old = [row for row in kept.rows if (row["seed"], row.get("arm")) not in keys]
    return kept._replace(rows=sorted([*old, *now], key=lambda row: (row["seed"], str(row.get("arm")))))


def last_evaluated(experiment: Experiment, size: str) -> int:
    """Find the last iteration whose policy is evaluated."""
    of = experiment.sizes[size]
    return of.iterations // of.evaluate_every * of.evaluate_every - 1


def by_run(rows: Rows) -> dict[str, Rows]:
    rows_of: dict[str, Rows] = defaultdict(list)
    for row in rows:
        rows_of[row["run"]].append(row)
    return rows_of


def summaries(
    experiment: Experiment,
    size: str,
    cells: Sequence[Cell],
    curves: dict[str, dict[int, float]],
    metrics: dict[str, Rows],
    episodes: int,
) -> list[Summary]:
    """Summarise the arms at each learning rate, in the order of the rates, best area first."""
    arms_of_all_rates: list[Summary] = []
    for rate in experiment.sizes[size].learning_rates():
        arms = []
        for arm in experiment.arms:
            of_arm = [cell for cell in cells if cell.arm.name == arm.name and cell.rate == rate]
            runs = [cell.config.run for cell in of_arm]
            if runs:
                arms.append(
                    summarise_arm(
                        arm.name,
                        rate,
                        [curves[run] for run in runs],
                        [sum_spending(metrics[run]) for run in runs],
                        experiment.level,
                        episodes,
                        [cell.config.policy.path for cell in of_arm],
                    )
                )
        arms_of_all_rates += sorted(arms, key=lambda one: -one.area)
    return arms_of_all_rates


def sum_spending(rows: Rows) -> dict[int, Spent]:
    """Sum up, by iteration, what was spent until its end; -1: nothing."""
    sums = list(
        accumulate(
            ((row["episodes"], row["turns"], row["tokens"], row["seconds"]) for row in rows),
            lambda so_far, now: tuple(map(sum, zip(so_far, now, strict=True))),
        )
    )
    return {-1: Spent(0, 0, 0, 0.0)} | {row["iteration"]: Spent(*total) for row, total in zip(rows, sums, strict=True)}
