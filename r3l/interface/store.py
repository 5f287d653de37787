"""A store from Python: SQL whose answer is Arrow, pandas or polars; a run's tables; replays."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from r3l import plugins
from r3l.config import Config
from r3l.config.compose import PATH
from r3l.errors import StoreError
from r3l.interface.iterations import assignments
from r3l.judge import REPLIES
from r3l.judge.verdict import judge
from r3l.pipeline.replay import recompute
from r3l.pipeline.runner import Threads
from r3l.pipeline.settings.continuing import load_config
from r3l.pipeline.workbench import Replay
from r3l.store.catalog import VIEWS
from r3l.store.damage import Finding
from r3l.store.differences.difference import Difference, diff
from r3l.store.query import ask, connect_for_users, require_branch, require_runs
from r3l.store.stage import Store
from r3l.store.tables.schemas import TABLES

SECONDS = 600.0


@dataclass(frozen=True)
class Answer:
    """Rows of a question. `arrow` has them as a pyarrow table, which DuckDB, datasets and others read as it is.
    `left_out` names the runs of which some stages are damaged, with what is left out of the rows and why."""

    arrow: pa.Table
    left_out: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """List the rows as dicts, column by column name."""
        return list(self.arrow.to_pylist())

    def pandas(self) -> Any:
        """Convert to a ``pandas.DataFrame``. Raise ImportError where pandas is not installed."""
        return self.arrow.to_pandas()

    def polars(self) -> Any:
        """Convert to a ``polars.DataFrame``. Raise ImportError where polars is not installed."""
        import polars

        return polars.from_arrow(self.arrow)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {', '.join(self.arrow.column_names)}>"


@dataclass(frozen=True)
class Tables:
    """A store as it is read from outside."""

    store: Store

    @property
    def root(self) -> str:
        """Say where it is kept: a folder, or an s3:// address."""
        return self.store.root

    def runs(self) -> list[str]:
        """List the names of the runs that have a committed stage."""
        return self.store.runs()

    def run(self, name: str, branch: str = "") -> Run:
        """Find a run, or a branch of it. Raise `StoreError` where there is none."""
        if name not in self.runs():
            raise StoreError(f"no run {name!r} in {self.root}: it has {', '.join(self.runs()) or 'none'}")
        if branch and branch not in self.store.branches(name):
            there = ", ".join(self.store.branches(name)) or "no branches"
            raise StoreError(f"run {name}: no branch {branch!r}; it has {there}")
        return Run(self, name, branch)

    def sql(
        self, question: str, *, runs: Sequence[str] | str | None = None, branch: str = "", seconds: float = SECONDS
    ) -> Answer:
        """Ask one SELECT of the tables and views that data/README.md describes. It opens no other file.

        Args:
            runs: only these, or this one; None: all.
            branch: show this branch of each run in place of the run itself.
            seconds: after which the question is stopped.

        Raises:
            StoreError: DuckDB can't run it (its own words), it is not one SELECT, or the only run is damaged; there is
                no such run, or none that has the branch.
        """
        names = None if runs is None else [*dict.fromkeys([runs] if isinstance(runs, str) else runs)]
        require_runs(self.store, names or ())
        if branch:
            require_branch(self.store, self.runs() if names is None else names, branch)
        with connect_for_users(self.store, names, branch=branch, question=question) as connection:
            left_out = dict(connection.execute("FROM left_out").fetchall())
            for run, why in left_out.items():
                warnings.warn(f"run {run} is damaged: {why}", stacklevel=2)
            return Answer(ask(connection, question, seconds), left_out)


@dataclass(frozen=True)
class Replayed:
    """What a replay made: a branch, and how it differs from what it was replayed from."""

    run: Run
    difference: Difference

    def __str__(self) -> str:
        return str(self.difference)


@dataclass(frozen=True)
class Run:
    """One run of a store, or (with `branch`) a branch of it."""

    tables: Tables
    name: str
    branch: str = ""

    def sql(self, question: str, *, seconds: float = SECONDS) -> Answer:
        """Ask one SELECT of this run alone. Raise as `Tables.sql` does."""
        return self.tables.sql(question, runs=[self.name], branch=self.branch, seconds=seconds)

    def table(self, name: str, iteration: int | None = None) -> Answer:
        """Read a table or view as it is, of one iteration or (None) of all. Raise `StoreError` for an unknown one."""
        names = (*TABLES, *VIEWS)
        if name not in names:
            raise StoreError(f"no table {name!r}: expected one of {', '.join(names)}")
        return self.sql(f"FROM {name}" + ("" if iteration is None else f" WHERE iteration = {int(iteration)}"))

    def iterations(self) -> Answer:
        """Read the figures of each iteration."""
        return self.table("iterations")

    def trajectories(self, iteration: int | None = None) -> Answer:
        """Read base, retry and distilled trajectories, those of evaluations too: a row each."""
        return self.table("trajectories", iteration)

    def turns(self, iteration: int | None = None) -> Answer:
        """Read the turns of all trajectories, with texts, token ids and log-probabilities."""
        return self.table("turns", iteration)

    def reflections(self, iteration: int | None = None) -> Answer:
        """Read the reflections: a row each, with text, outcome, pivot and what came of it."""
        return self.table("reflections", iteration)

    def check(self, quick: bool = False, deep: bool = False) -> list[Finding]:
        """Do as `r3l check` does (`quick`, `deep`: its options). What is wrong; empty where nothing is."""
        return judge(self.tables.store, self.name, quick, replies=REPLIES if deep else 0).findings

    def config(self, iteration: int | None = None) -> Config:
        """Load the settings of an iteration; None: the newest. Raise `StoreError` where it was never begun."""
        newest = self.tables.store.next_iteration(self.name, self.branch) - 1
        return load_config(self.tables.store, self.name, self.branch, newest if iteration is None else iteration)

    def replay(
        self,
        iteration: int,
        from_stage: str = "credit",
        to_stage: str = "updates",
        settings: Mapping[str, Any] | None = None,
        branch: str = "",
    ) -> Replayed:
        """Recompute an iteration from a stored stage on, into a new branch. The original never changes.

        Args:
            from_stage, to_stage: first and last stage that is computed again; those before are taken as stored.
            settings: values to change, as ``{"method.alpha": 5}``; none: prove that nothing changes.
            branch: the new branch's name; empty: replay-1, replay-2, ...

        Raises:
            ConfigError: an unknown stage or setting. StoreError: no such iteration, or the branch made it otherwise.
        """
        for value in (settings or {}).values():
            if isinstance(value, str) and PATH.fullmatch(value):
                plugins.allow(value)
        store, replay = self.tables.store, Replay(self.branch, from_stage, to_stage)
        changes = assignments(settings or {})
        report = recompute(store, self.name, iteration, replay, changes, branch, runner=Threads())
        difference = diff(store, self.name, iteration, self.branch, report["branch"])
        return Replayed(Run(self.tables, self.name, report["branch"]), difference)


def open_store(path: str | Path = "") -> Tables:
    """Open a store: a folder or an s3:// address; empty: R3L_STORE, else data/runs.

    Raises:
        StoreError: there is no store.
    """
    return Tables(Store.open(str(path), reading=True))
