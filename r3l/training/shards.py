"""Parquet files of training rows, read one group at a time, so that only the rows of one micro-batch are in memory."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from r3l.errors import TrainingError
from r3l.store.tables.schemas import arrow_schema
from r3l.training.rows import Search, UpdateRow
from r3l.training.trie.tree import build_trie


@dataclass(slots=True)
class Count:
    """What rows hold, those without a gradient too. `tokens`: trained tokens of each term; `sequence_tokens`: of all
    rows, each run alone."""

    rows: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    sequence_tokens: int = 0

    def add(self, row: UpdateRow) -> None:
        self.rows += 1
        self.tokens[row.term] += len(row.positions)
        self.sequence_tokens += row.length


@dataclass(slots=True)
class Group:
    """What is known of a group without its tokens. `rows`: those with a gradient; `cost`: tokens of its trie."""

    group_id: str
    files: set[str] = field(default_factory=set)
    rows: int = 0
    cost: int = 0
    count: Count = field(default_factory=Count)


@dataclass(slots=True)
class Survey(Count):
    """One pass over all rows."""

    groups: list[Group] = field(default_factory=list)  # in the order of the files; only those with a gradient
    behaviours: set[str] = field(
        default_factory=set
    )  # digests of the policies that old log-probabilities are needed of
    reference: bool = False
    taught: bool = False  # whether a row has a teacher
    bases: dict[str, str] = field(default_factory=dict)  # row -> group, of bases' rows
    longest: int = 0
    searches: set[Search] = field(default_factory=set)  # for clip bounds that are chosen for the whole batch


def survey(files: Sequence[str], policy: str, overlap: bool = False) -> Survey:
    """Count the rows and find the groups; `overlap` as of `UpdateRow.needs_old`. Raise `TrainingError` for a file or a
    row that is not as the schema says."""
    batch = Survey()
    groups: dict[str, Group] = {}
    counts: dict[str, Count] = defaultdict(Count)
    for file in files:
        # only one file's rows are held: a group's trie cost is counted file by file, and the rows are dropped
        active: dict[str, list[UpdateRow]] = {}
        for row in read_rows([file]):
            batch.add(row)
            counts[row.group_id].add(row)
            if row.has_gradient:
                active.setdefault(row.group_id, []).append(row)
        for group_id, rows in active.items():
            group = groups.setdefault(group_id, Group(group_id, count=counts[group_id]))
            group.files.add(file)
            group.rows += len(rows)
            group.cost += build_trie([row.token_ids for row in rows]).tokens_computed
            batch.behaviours |= {row.behaviour_policy for row in rows if row.needs_old(policy, overlap)}
            batch.reference |= any(row.kl_coefficient > 0 for row in rows)
            batch.taught |= any(row.teacher for row in rows)
            batch.bases |= {row.row_id: group_id for row in rows if row.of_a_base}
            batch.longest = max(batch.longest, *(len(row.token_ids) for row in rows))
            batch.searches |= {row.search for row in rows if row.loss.balances}
    batch.groups = list(groups.values())
    return batch


def read_rows(files: Iterable[str], group_ids: Sequence[str] | None = None) -> Iterator[UpdateRow]:
    """Yield the rows of some files in their order, or only those of some groups."""
    for file in files:
        try:
            required_columns = {field.name for field in arrow_schema("training_rows") if not field.nullable}
            if missing := required_columns - set(pq.read_schema(file).names):
                raise TrainingError(f"{file}: no column {', '.join(sorted(missing))}; expected a part of training_rows")
            keep = None if group_ids is None else ds.field("group_id").isin(list(group_ids))
            for batch in ds.dataset(file).to_batches(filter=keep, batch_size=64):
                yield from map(UpdateRow.read, batch.to_pylist())
        except (OSError, ValueError) as error:
            raise TrainingError(f"{file}: {error}; expected a parquet file of training_rows") from error


def read_groups(groups: Sequence[Group]) -> list[UpdateRow]:
    """Read the rows with a gradient of some groups."""
    files = sorted(set().union(*(group.files for group in groups)))
    return [row for row in read_rows(files, [group.group_id for group in groups]) if row.has_gradient]


def micro_batches(groups: Sequence[Group], tokens: int) -> list[list[Group]]:
    """Batch whole groups in their order, up to `tokens` trie tokens together; a larger group is alone."""
    batches: list[list[Group]] = []
    batch_tokens = 0
    # a group is never split: its rows share a trie, and its cost counts the shared prefix once
    for group in groups:
        if batches and batch_tokens + group.cost <= tokens:
            batches[-1].append(group)
            batch_tokens += group.cost
        else:
            batches.append([group])
            batch_tokens = group.cost
    return batches
