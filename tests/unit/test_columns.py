"""Columns are made from the fields of records."""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import pytest

from r3l.records import Column
from r3l.stages import RECORDS
from r3l.store.tables.columns import columns_of
from r3l.store.tables.schemas import TABLES


@dataclass
class Sample:
    name: Annotated[str, Column("what it is called")]
    count: Annotated[int, Column("how many")]
    seed: Annotated[int, Column("drawn from", bits=64)]
    share: Annotated[float | None, Column("of all; null: not measured", since=2, before=0.5)]
    exact: Annotated[float, Column("the same, exactly", bits=64)]
    ids: Annotated[list[int], Column("token ids", dropped_with="tokens")]
    scores: Annotated[list[float] | None, Column("a score each")]


def test_a_column_has_its_field_s_name_and_type_and_what_the_field_says():
    found = {one.name: one for one in columns_of(Sample)}
    assert {name: (str(one.type), one.nullable) for name, one in found.items()} == {
        "name": ("string", False), "count": ("int32", False), "seed": ("int64", False), "share": ("float", True),
        "exact": ("double", False), "ids": (str(pa.list_(pa.int32())), False),
        "scores": (str(pa.list_(pa.float32())), True),
    }  # fmt: skip
    assert list(found) == ["name", "count", "seed", "share", "exact", "ids", "scores"]
    assert (found["share"].meaning, found["share"].said.since) == ("of all; null: not measured", 2)
    assert [found["ids"].dropped_by(drop) for drop in ("logprobs", "tokens", "all", "policies")] == [
        False,
        True,
        True,
        False,
    ]


@dataclass
class Mute:
    name: str


@dataclass
class Strange:
    name: Annotated[dict[str, int], Column("counts")]


def test_a_field_that_can_be_no_column_is_refused_by_name():
    with pytest.raises(TypeError, match=r"Mute\.name: <class 'str'> says no column; write Annotated"):
        columns_of(Mute)
    with pytest.raises(
        TypeError, match=r"Strange\.name: no column has values of dict\[str, int\]; expected int, float"
    ):
        columns_of(Strange)


def test_what_is_left_out_of_digests_by_its_name_is_so_in_every_table():
    said = Counter((one.name, one.said.volatile) for columns in TABLES.values() for one in columns)
    volatile = {name for name, is_so in said if is_so}
    assert volatile == {"seconds", "peak_memory_mb"}
    assert not [name for name in volatile if (name, False) in said]


def test_every_table_has_a_record_and_a_column_that_says_where_it_belongs():
    assert list(TABLES) == list(RECORDS)
    assert all("iteration" in {one.name for one in columns} for columns in TABLES.values())
