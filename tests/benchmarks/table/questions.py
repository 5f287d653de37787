"""Ten questions of data/queries, asked of r3l's store, of SQLite (the same SQL, where its dialect differs translated)
and of rows that Python has read from JSON lines or pickles."""

import json
import pickle
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from r3l.store.catalog import connect
from r3l.store.stage import Store
from tests.benchmarks.store_of_many import main as make_store
from tests.benchmarks.table.answers import ANSWERS, Answer, Tables
from tests.benchmarks.table.form import in_turns
from tests.benchmarks.table.stores import Rows, put_jsonl, put_pickle, put_sqlite

QUERIES = Path(__file__).parents[3] / "data/queries"
TABLES = ("trajectories", "turns", "reflections", "credit", "training_rows", "events")


def asked(number: str) -> str:
    [path] = QUERIES.glob(f"{number}_*.sql")
    return path.read_text()


def r3l_answers(store: Store, numbers: Iterable[str]) -> dict[str, Answer]:
    questions = {number: asked(number) for number in numbers}
    with connect(store, question="\n".join(questions.values())) as connection:  # as `r3l sql` opens it
        return {number: connection.execute(sql).fetchall() for number, sql in questions.items()}


VIEWS = """
CREATE TEMP VIEW base AS SELECT {place}, trajectory_id AS base_id, group_id, task_type, reward, success, turns
FROM trajectories WHERE kind = 'base';
CREATE TEMP VIEW pivots AS SELECT r.run, r.branch, r.iteration, r.base_id, r.reflection_id, r.trajectory_id AS retry_id,
    r.pivot_turn, r.reward - b.reward AS gain, r.success AS retry_success, b.turns AS base_turns
FROM trajectories r JOIN trajectories b ON {same} AND b.trajectory_id = r.base_id WHERE r.kind = 'retry';
CREATE TEMP VIEW groups AS SELECT {place}, group_id, min(reward) < max(reward) AS mixed,
    sum(max(advantage, 0)) AS positive_mass, -sum(min(advantage, 0)) AS negative_mass
FROM credit GROUP BY {place}, group_id;
""".format(place="run, branch, iteration", same="(b.run, b.branch, b.iteration) = (r.run, r.branch, r.iteration)")
DIALECT = (
    (r"::\w+", ""), (r"FILTER \(", "FILTER (WHERE "), (r"len\(weights\)", "length(weights) / 4"),
    (r"GROUP BY ALL\)", "GROUP BY run, branch, iteration, group_id)"), (r"GROUP BY ALL", "GROUP BY 1, 2, 3"),
    (r"ORDER BY ALL", "ORDER BY 1, 2, 3"), (r"sum\((\w+)\) /", r"1.0 * sum(\1) /"),
)  # fmt: skip


def sqlite_answers(path: Path, numbers: Iterable[str]) -> dict[str, Answer]:
    lite = sqlite3.connect(path)
    lite.executescript(VIEWS)
    found = {}
    for number in numbers:
        sql = asked(number)
        for pattern, to in DIALECT:
            sql = re.sub(pattern, to, sql)
        found[number] = lite.execute(sql).fetchall()
    lite.close()
    return found


def python_answers(tables: Tables, numbers: Iterable[str]) -> dict[str, Answer]:
    return {number: ANSWERS[number](tables) for number in numbers}


def stores(folder: Path, iterations: int) -> dict[str, Callable[[Iterable[str]], dict[str, Answer]]]:
    """The shipped run's iterations again and again, in each kind of store: how each is opened and asked."""
    make_store(str(folder / "runs"), 1, iterations)
    store = Store.open(str(folder / "runs"), reading=True)
    with connect(store) as connection:
        tables = {name: connection.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist() for name in TABLES}
    for name, rows in tables.items():
        put_jsonl(folder / f"{name}.jsonl", rows)
        put_pickle(folder / f"{name}.pickle", rows)
    put_sqlite(folder / "sqlite", tables)

    def jsonl(name: str) -> Rows:
        with (folder / f"{name}.jsonl").open() as file:
            return [json.loads(line) for line in file]

    def pickled(name: str) -> Rows:
        rows: Rows = pickle.loads((folder / f"{name}.pickle").read_bytes())  # noqa: S301
        return rows

    return {
        "r3l": lambda numbers: r3l_answers(store, numbers),
        "JSON lines": lambda numbers: python_answers({name: jsonl(name) for name in TABLES}, numbers),
        "pickle": lambda numbers: python_answers({name: pickled(name) for name in TABLES}, numbers),
        "SQLite": lambda numbers: sqlite_answers(folder / "sqlite", numbers),
    }


def compared(folder: Path, iterations: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Processor seconds to open the store and ask the questions: (r3l, the rival), the sides in turns. All
    answers are r3l's."""
    ways = stores(folder, iterations)
    truth = ways["r3l"](ANSWERS)
    found = {}
    for rival in ways.keys() - {"r3l"}:
        agree(truth, ways[rival](ANSWERS), rival)
        sides = {name: timed(ways[name], ANSWERS) for name in ("r3l", rival)}
        costs = in_turns(sides, rounds)
        found[rival] = (costs["r3l"], costs[rival])
    return found


def timed(way: Callable[[Iterable[str]], object], numbers: Iterable[str]) -> Callable[[], float]:
    def cost() -> float:
        began = time.process_time()
        way(numbers)
        return time.process_time() - began

    return cost


def agree(truth: Mapping[str, Answer], answers: Mapping[str, Answer], rival: str) -> None:
    """Raise where an answer has other rows than r3l's, but for their order and the last digit of a rounded figure."""
    for number, rows in answers.items():
        pairs = list(zip(sorted(truth[number], key=exact), sorted(rows, key=exact), strict=True))
        for one, other in pairs:
            assert all(map(same, one, other)), f"{rival}, question {number}: {other}, r3l says {one}"


def exact(row: tuple[Any, ...]) -> str:
    """What the rows of an answer are told apart by."""
    return repr([value for value in row if isinstance(value, str | int)])


def same(one: Any, other: Any) -> bool:
    if not (isinstance(one, float) and isinstance(other, float)):
        return bool(one == other)
    digits = max(len(repr(value).partition(".")[2]) for value in (one, other))
    return abs(one - other) < 1.01 * 0.1**digits
