"""Whatever rows a stage has, it gives back the same rows, and their digest knows them by content alone."""

import tempfile

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from r3l.stages import STAGES
from r3l.store.digests import canonical, table_digest
from r3l.store.layout import StageKey, key_of
from r3l.store.stage import Store
from r3l.store.tables.parts import decode, encode, to_table
from r3l.store.tables.schemas import TABLES, arrow_schema

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
VALUES = {
    pa.string(): st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    pa.bool_(): st.booleans(),
    pa.int32(): INT32,
    pa.int64(): INT64,
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.list_(pa.string()): st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=5), max_size=5),
    pa.list_(pa.int32()): st.lists(INT32, max_size=5),
    pa.list_(pa.float32()): st.lists(st.floats(width=32, allow_nan=False), max_size=5),
}


def rows(table: str, most: int = 6) -> st.SearchStrategy[list[dict]]:
    cells = {
        column.name: st.none() | VALUES[column.type] if column.nullable else VALUES[column.type]
        for column in TABLES[table]
    }
    return st.lists(st.fixed_dictionaries(cells), max_size=most)


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[dict]]:
    table = draw(st.sampled_from(sorted(TABLES)))
    return table, draw(rows(table))


@given(tables())
@settings(max_examples=30, deadline=None)
def test_rows_come_back_as_they_were(drawn: tuple[str, list[dict]]):
    table, given_rows = drawn
    built = to_table(table, given_rows)
    back = decode(encode(built)).cast(arrow_schema(table))
    assert back.equals(built)
    assert back.to_pylist() == built.to_pylist() == given_rows
    assert table_digest(back) == table_digest(built)


@given(tables(), st.data())
@settings(max_examples=30, deadline=None)
def test_the_digest_sees_rows_and_not_chunks(drawn: tuple[str, list[dict]], data: st.DataObject):
    table, given_rows = drawn
    built = to_table(table, given_rows)
    cut = data.draw(st.integers(0, len(given_rows)))
    assert table_digest(pa.concat_tables([built.slice(0, cut), built.slice(cut)])) == table_digest(built)
    if given_rows:
        assert table_digest(built.slice(1)) != table_digest(built)


SCALARS = st.none() | st.booleans() | INT64 | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(rows("events"), st.dictionaries(st.text(max_size=5), SCALARS, max_size=4))
@settings(max_examples=8, deadline=None)
def test_any_metrics_can_be_kept(events: list[dict], metrics: dict):
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        ref = store.commit(StageKey("demo", "", 0, "tasks"), {"events": events}, fingerprint="f", metrics=metrics)
        assert store.read(ref, "events").to_pylist() == events
        assert store.manifest(ref)["metrics"].keys() == metrics.keys()


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    st.from_regex(r"([a-z0-9]{1,8})?", fullmatch=True),
    st.integers(-1, 10**6),
    st.sampled_from(sorted(STAGES)),
    st.none() | st.integers(0, 10**4),
)
def test_a_place_is_read_back_from_its_path(run: str, branch: str, iteration: int, stage: str, shard: int | None):
    key = StageKey(run, branch, iteration, stage, shard)
    assert key_of(key.manifest) == key


@given(JSON)
def test_canonical_json_does_not_depend_on_order(value: object):
    assert canonical({"a": value, "b": 1}) == canonical(dict(reversed(list({"a": value, "b": 1}.items()))))
