"""Public problem sets by name, from a file where there is one, else from their hub; or any jsonl or parquet file.

A set's file is <data_root>/math/<name>-<hub split>.jsonl or .parquet, in the set's own columns.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.config.environments import MathSettings
from r3l.environments.base import DataPlan, OnProgress
from r3l.environments.math.problems import Problem, problem_of
from r3l.environments.outside import value_and_type
from r3l.errors import WorldError
from r3l.store.files.local import replace_text
from r3l.system.home import locate
from r3l.system.packages import import_package
from r3l.system.seeds import derive
from r3l.system.visible import first_line

Row = Mapping[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file. Raise `WorldError` where it is neither kind of file, or a line of it is no JSON
    object."""
    if path.suffix == ".parquet":
        return parquet_rows(path)
    if path.suffix != ".jsonl":
        raise WorldError(f"{path.name}: expected a .jsonl or .parquet file")
    # Only \n ends a line: a JSON text may hold U+2028 and its like, at which `splitlines` would cut it in two.
    lines = decode_path(path).split("\n")
    return [row_of(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def decode_path(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise WorldError(
            f"{path.name}, line {line}: the byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error


def row_of(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WorldError(
            f"{path.name} is not a JSONL file: line {number}: {error}; expected one JSON object per line"
        ) from error
    if not isinstance(row, dict):
        raise WorldError(f"{path.name}, line {number}: expected a JSON object, got {value_and_type(row)}")
    return row


def parquet_rows(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise WorldError(f"{path.name} can't be read as Parquet: {first_line(error)}") from error
    return rows


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The source of a set. `splits`: our name -> the hub's; `held_out`: problems kept from the training split for test;
    `count`: problems of the test split, as published."""

    hub: str
    config: str | None
    splits: dict[str, str]
    held_out: int = 0
    count: int | None = None


BENCHMARKS: dict[str, Benchmark] = {
    "dapo": Benchmark(
        "open-r1/DAPO-Math-17k-Processed", "all", {"train": "train", "test": "train"}, held_out=300, count=300
    ),
    "gsm8k": Benchmark("openai/gsm8k", "main", {"train": "train", "test": "test"}, count=1319),
    "math500": Benchmark("HuggingFaceH4/MATH-500", None, {"test": "test"}, count=500),
    "minerva": Benchmark("math-ai/minervamath", None, {"test": "test"}, count=272),
    "olympiad": Benchmark("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", {"test": "train"}, count=674),
    "amc23": Benchmark("math-ai/amc23", None, {"test": "test"}, count=40),
}


def benchmark_problems(settings: MathSettings, split: str) -> list[Problem]:
    """Read the problems of a split; "heldout" is another name of "test".

    Raises:
        WorldError: an unknown set or split, or a set that is neither on disk nor reachable.
    """
    split = "test" if split == "heldout" else split
    name = settings.dataset
    if name not in BENCHMARKS:
        return file_problems(locate(name), settings, split)
    benchmark = BENCHMARKS[name]
    if split not in benchmark.splits:
        raise WorldError(f"{name} has no split {split!r}: expected one of {', '.join(benchmark.splits)}")
    rows = hub_rows(name, benchmark, benchmark.splits[split], locate(settings.data_root) / "math")
    problems = [problem_of(row, f"{index:05d}", name) for index, row in enumerate(rows)]
    return (
        choose_problems(distinct(problems), split, benchmark.held_out, settings.tasks_seed)
        if benchmark.held_out
        else problems
    )


def file_problems(path: Path, settings: MathSettings, split: str) -> list[Problem]:
    """Read the problems of a user's file: split "all" is every row of it; "train" and "test" part its questions,
    `heldout_tasks` for test."""
    if not path.is_file():
        raise WorldError(
            f"math dataset {str(path)!r}: no such file, and no set of that name; expected procedural, "
            f"{', '.join(BENCHMARKS)}, or a jsonl or parquet file"
        )
    problems = [problem_of(row, f"{index:05d}", path.stem) for index, row in enumerate(read_rows(path))]
    if split == "all":
        return problems
    problems = distinct(problems)
    if split not in ("train", "test"):
        raise WorldError(f"{path.name} has no split {split!r}: expected train, test (or heldout), or all")
    if settings.heldout_tasks >= len(problems):
        raise WorldError(
            f"{path.name} has {len(problems)} problems, of which heldout_tasks={settings.heldout_tasks} would leave "
            "none to train on: lower heldout_tasks, or ask for split all"
        )
    return choose_problems(problems, split, settings.heldout_tasks, settings.tasks_seed)


def hub_rows(name: str, benchmark: Benchmark, hub_split: str, folder: Path) -> Iterable[Row]:
    """Read the set from a file of that name, otherwise by `datasets`, which caches its downloads. Raise `WorldError` if
    neither works."""
    stem = folder / f"{name}-{hub_split}"
    if path := kept_rows(stem):
        return read_rows(path)
    way_out = (
        f"or put its rows at {stem}.jsonl (or .parquet), in their own columns; dataset=procedural needs no download"
    )
    load_dataset = import_package("datasets", "math").load_dataset
    try:
        rows: Iterable[Row] = load_dataset(benchmark.hub, benchmark.config, split=hub_split)
        return rows
    except (OSError, ValueError, RuntimeError) as error:  # offline, unknown on the hub, or a broken download
        raise WorldError(
            f"{name} ({benchmark.hub}) could not be loaded: {type(error).__name__}: {error}. "
            f"Try again with a connection, {way_out}"
        ) from error


def distinct(problems: Iterable[Problem]) -> list[Problem]:
    """Drop repeated questions, so that no problem is in both train and test."""
    by_question: dict[str, Problem] = {}
    for problem in problems:
        by_question.setdefault(" ".join(problem.question.split()), problem)
    return list(by_question.values())


def choose_problems(problems: list[Problem], split: str, held_out: int, seed: int) -> list[Problem]:
    """Choose the problems of train or test. The seed and each question decide which problems are held out, not their
    order."""
    by_seed = sorted(problems, key=lambda problem: derive(seed, "math held out", problem.question))
    held_out_questions = {problem.question for problem in by_seed[:held_out]}
    return [problem for problem in problems if (problem.question in held_out_questions) == (split == "test")]


def kept_rows(stem: Path) -> Path | None:
    """Find the rows of a benchmark's split below the data root, where they were fetched or put before."""
    return next((path for path in (stem.with_suffix(".jsonl"), stem.with_suffix(".parquet")) if path.is_file()), None)


def prepare_rows(
    settings: MathSettings, root: Path, download: bool, progress: OnProgress, wanted: Sequence[str]
) -> DataPlan:
    """Keep a benchmark's rows below the data root, so that no later run asks its hub. No file is asked for of a split
    that is not `wanted` (empty: all are)."""
    if settings.dataset == "procedural":
        return DataPlan(
            f"procedural-{settings.tasks_seed}",
            ("train", "heldout"),
            notes=("problems are made by seed, no file is needed",),
        )
    if settings.dataset not in BENCHMARKS:
        file = locate(settings.dataset)
        if not file.is_file():
            raise WorldError(
                f"dataset {settings.dataset!r} is neither a file nor a benchmark: expected procedural, "
                f"{', '.join(BENCHMARKS)} or a jsonl or parquet file"
            )
        return DataPlan(file.stem, ("train", "test"), (file,))
    benchmark, files = BENCHMARKS[settings.dataset], []
    splits = {
        ours: theirs for ours, theirs in benchmark.splits.items() if not wanted or ours in wanted
    } or benchmark.splits
    stems = {split: root / "math" / f"{settings.dataset}-{split}" for split in dict.fromkeys(splits.values())}
    missing = [
        f"split {split} at {stem}.jsonl (or .parquet)" for split, stem in stems.items() if kept_rows(stem) is None
    ]
    if missing and not download:
        raise WorldError(f"{settings.dataset} is missing: put the rows of {benchmark.hub} there: {'; '.join(missing)}")
    for split, stem in stems.items():
        path = kept_rows(stem)
        if path is None:
            rows = list(hub_rows(settings.dataset, benchmark, split, root / "math"))
            path = stem.with_suffix(".jsonl")
            replace_text(path, "".join(json.dumps(dict(row), default=str) + "\n" for row in rows))
            progress(f"rows of {stem.name}", len(rows), len(rows))
        files.append(path)
    return DataPlan(settings.dataset, tuple(splits), tuple(files), {"test": benchmark.count} if benchmark.count else {})
