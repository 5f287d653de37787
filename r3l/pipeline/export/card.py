"""The model card of an exported policy, made from the run's tables: method, data, evaluation, curve, settings. No path
and no address of the machine is in it."""

import json
from collections.abc import Sequence
from importlib.resources import files as package_files
from string import Template
from typing import Any

from r3l.config import Config
from r3l.engines.made_policies import HUB, hub_name
from r3l.environments.base import Sourced
from r3l.environments.kinds import make_world
from r3l.errors import R3LError
from r3l.evaluation.score import score
from r3l.pipeline.summary import figure
from r3l.store.catalog import connect
from r3l.store.metrics import METRICS
from r3l.store.query import query
from r3l.store.stage import Store
from r3l.system.home import locate
from r3l.system.visible import visible
from r3l.version import __version__

ROWS = 24  # of the curve
# the others are the machine's
SECTIONS = ("seed", "method", "environment", "policy", "rollout", "training", "evaluation")
CURVE = ("base_success", "base_reward", "retry_improvement", "loss", "entropy", "kl_start")
CURVE_ROWS = "FROM iterations WHERE iteration <= ? ORDER BY iteration"
EVALUATED = """
SELECT iteration, benchmark, split, evaluation, temperature, tasks, of_tasks, list(success) AS success,
       list(reward) AS reward, list(task_id) AS ids
FROM evaluations WHERE iteration IN (-1, ?) GROUP BY ALL ORDER BY benchmark, split, iteration
"""


def model_card(store: Store, config: Config, iteration: int, digest: str, title: str) -> str:
    """Write the card of the policy that `iteration` of a run wrote.

    Args:
        config: the settings that the iteration was run with.
    """
    with connect(store, [config.run], config.branch, question=CURVE_ROWS + EVALUATED) as connection:
        rows = query(connection, CURVE_ROWS, [iteration]).to_pylist()
        evaluations = query(connection, EVALUATED, [iteration]).to_pylist()
    base = base_model(config)
    return Template(package_files(__package__).joinpath("model_card.md").read_text(encoding="utf-8")).substitute(
        base_line=f"base_model: {base}\n" if base else "",
        title=inert_cell(title),
        base=f"`{base}`" if base else f"The policy `{inert_cell(config.policy.name)}`",
        method=inert_cell(config.method.kind),
        environment=inert_cell(config.environment.kind),
        iterations=iteration + 1,
        run=inert_cell(config.run),
        digest=digest,
        evaluations=_evaluations(evaluations),
        curve=_curve(rows),
        data=_data(config),
        settings=json.dumps(shown_settings(config), indent=1, ensure_ascii=False),
        version=__version__,
    )


def base_model(config: Config) -> str:
    """Name the model of the hub that the run started from; empty if it has none."""
    hub_model = hub_name(locate(config.policy.path)) or HUB.get(config.policy.name, "")
    return hub_model.partition("@")[0]


def shown_settings(config: Config) -> dict[str, Any]:
    """Choose the settings that made the policy, without those that name a place of a machine."""
    whole = config.model_dump(mode="json")
    return {name: _without_places(whole[name]) for name in SECTIONS if name in whole}


def inert_cell(text: object) -> str:
    """Write a text as it stands in a table of Markdown: it acts neither in a terminal nor on the page."""
    text_shown = " ".join(visible(str(text)).split())
    return text_shown.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(inert_cell(one) for one in line)} |" for line in lines)


def _evaluations(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "Not evaluated."
    table_rows = []
    for row in rows:
        one = score(list(zip(row["success"], row["reward"], strict=True)), row["ids"])
        of = "the start" if row["iteration"] == -1 else "this policy"
        sample = f"{row['tasks']} of {row['of_tasks']}" if row["of_tasks"] else f"{len(set(row['ids']))}"
        interval = f"{one.low:.1%} to {one.high:.1%}"
        table_rows.append(
            [row["benchmark"], of, sample, f"{row['temperature']:g}", f"{one.rate:.1%}", interval, f"{one.reward:.3f}"]
        )
    return table(["benchmark", "policy", "tasks", "temperature", "success", "95 % interval", "mean reward"], table_rows)


def _curve(rows: Sequence[dict[str, Any]]) -> str:
    """Draw at most `ROWS` iterations, spread evenly, the last one among them."""
    step = max(1, -(-len(rows) // ROWS))
    curve_rows = [row for place, row in enumerate(rows) if place % step == 0 or place == len(rows) - 1]
    metric_of = {metric.column: metric for metric in METRICS}
    metrics = [metric_of[column] for column in CURVE]
    return table(
        ["iteration", *(metric.name for metric in metrics)],
        [[row["iteration"], *(figure(row[one.column], one.format) for one in metrics)] for row in curve_rows],
    )


def _data(config: Config) -> str:
    """Say what the tasks are made from, where the environment says it."""
    environment = config.environment
    sentence = f"Tasks of `{inert_cell(environment.kind)}`, split `{inert_cell(environment.split)}`, "
    sentence += f"{config.rollout.tasks} per iteration, {config.rollout.group_size} trajectories per task."
    try:
        world = make_world(environment)
        source = world.data(environment.split) if isinstance(world, Sourced) else ""
    except R3LError:  # its package or its data are not on this host
        source = ""
    return f"{sentence} Source: {inert_cell(source)}." if source else sentence


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        items = {name: _without_places(one) for name, one in value.items()}
        return {name: one for name, one in items.items() if one is not None or value[name] is None}
    if isinstance(value, list):
        return [one for one in map(_without_places, value) if one is not None]
    return None if isinstance(value, str) and ("/" in value or "\\" in value or "@" in value) else value
