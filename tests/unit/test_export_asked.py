"""An export on a web server is asked where it lies: the answers are those of the store, and few of its bytes are sent.

The hub's own server is not asked: of its addresses the mapping is tested."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.exports.hub_dataset import export_to_hub
from r3l.store.files.web import address_of
from r3l.store.query import ask, connect_for_users
from r3l.store.stage import Store
from r3l.store.tables.schemas import arrow_schema
from tests.support.range_server import RangeServer, serving

DATA = Path(__file__).parents[2] / "data"
QUESTIONS = sorted((DATA / "queries").glob("*.sql"))
LINES = "SELECT branch, count(*), sum(len(response)) FROM lines.turns GROUP BY branch"
REPLIES = "SELECT branch, turn, count(*), sum(tokens), round(sum(logprob), 9) FROM lines.replies GROUP BY ALL"
LONG = 1200  # ids of a turn's context: as in runs of language models, most of a table is token ids and texts


@pytest.fixture(scope="module")
def sample() -> Store:
    return Store.open(str(DATA / "sample_run"), reading=True)


@pytest.fixture(scope="module")
def server(sample: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    folder = tmp_path_factory.mktemp("web") / "export"
    export_to_hub(sample, "sample", folder)
    with serving(folder) as one:
        yield one


def answers(store: Store, question: str) -> list[str]:
    with connect(store, question=question) as connection:
        return sorted(map(str, connection.execute(question).fetchall()))


@pytest.mark.parametrize("question", [LINES, REPLIES, "FROM stages", *(QUESTIONS[k].read_text() for k in (4, 18))])
def test_what_is_asked_over_http_has_the_answers_of_the_store_branches_included(sample, server, question):
    before = server.sent
    there = Store.open(server.address, reading=True)
    assert answers(there, question) == answers(sample, question) != []
    assert question != "FROM stages" or server.sent - before < 30_000  # of 0.4 MB


def test_a_question_of_a_user_opens_its_tables_alone_and_what_cant_be_done_is_said(server):
    there = Store.open(server.address, reading=True)
    with connect_for_users(there, question="FROM base") as connection:
        assert ask(connection, "SELECT count(*) AS n FROM base").to_pylist() == [{"n": 64}]
        with pytest.raises(StoreError, match="can't be run"):
            ask(connection, f"FROM read_parquet('{there.files.url('turns.parquet')}')")
    with connect_for_users(there, question="FROM replies") as connection:
        assert ask(connection, "SELECT count(*) > 0 AS n FROM replies").to_pylist() == [{"n": True}]
    assert (there.runs(), there.branches("sample")) == (["sample"], ["alpha-5"])
    with pytest.raises(StoreError, match="can only be asked, with r3l sql"):
        there.files.put("sample/a", b"")
    with pytest.raises(StoreError, match="only a copy on this machine can be verified"):
        connect(there, ["sample"], verify=True)


@pytest.mark.parametrize(("content", "message"), [
    (None, "no r3l/index.json there; `r3l export"),
    ("{", "can't be read"),
    ('{"form": 2}', "the form 2, expected 1"),
    ('{"form": 1, "tables": ["turns"], "branches": []}', "manifests of r3l/index.json: expected names, got None"),
    ('{"form": 1, "tables": ["turns", 1], "branches": [], "manifests": []}', "tables of r3l/index.json"),
])  # fmt: skip
def test_an_address_without_an_export_is_refused(tmp_path, content, message):
    (tmp_path / "r3l").mkdir()
    if content:
        (tmp_path / "r3l" / "index.json").write_text(content)
    with serving(tmp_path) as one, pytest.raises(StoreError, match=message):
        Store.open(one.address, reading=True)


def test_an_export_holds_what_its_view_of_replies_says_and_one_without_answers_from_the_turns(sample, tmp_path):
    export_to_hub(sample, "sample", tmp_path)
    rows = tmp_path / "r3l" / "views" / "replies.parquet"
    right = answers(sample, REPLIES)
    with serving(tmp_path) as one:
        table = pq.read_table(rows)
        pq.write_table(table.slice(1), rows)
        assert answers(Store.open(one.address, reading=True), REPLIES) != right  # it is read
        index = json.loads((tmp_path / "r3l" / "index.json").read_text())
        del index["views"]
        (tmp_path / "r3l" / "index.json").write_text(json.dumps(index))
        rows.unlink()
        assert answers(Store.open(one.address, reading=True), REPLIES) == right


def test_an_address_of_the_hub_is_that_of_its_files():
    base = "https://huggingface.co/datasets/me/runs/resolve"
    assert address_of("hf://datasets/me/runs") == address_of("hf://datasets/me/runs/") == f"{base}/main"
    assert address_of("hf://datasets/me/runs@v2") == f"{base}/v2"
    for wrong in ("hf://me/runs", "hf://datasets/me", "hf://models/me/runs"):
        with pytest.raises(StoreError, match="expected hf://datasets/USER/NAME"):
            address_of(wrong)


def longer(
    table: pa.Table, ids: tuple[str, ...], floats: tuple[str, ...], texts: tuple[str, ...], size: int
) -> pa.Table:
    """The same rows with long lists and texts. In a training row every other half turn is a context, whose numbers are
    0, and all tokens of the replies have the same weight."""
    rng, rows = np.random.default_rng(0), table.num_rows
    offsets = pa.array(np.arange(rows + 1) * size, pa.int32())
    is_reply = np.ones(size) if size == LONG else np.arange(size) // (LONG // 2) % 2
    for name in (*ids, *floats):
        values = rng.integers(0, 32_000, rows * size) if name in ids else rng.random(rows * size)
        if name in floats:
            values = np.tile(is_reply, rows) * (np.repeat(rng.random(rows), size) if name == "weights" else values)
        field = table.schema.field(name)
        column = pa.ListArray.from_arrays(offsets, pa.array(values).cast(field.type.value_type))
        table = table.set_column(table.schema.get_field_index(name), name, column)
    for name in texts:
        column = pa.array([rng.bytes(size).hex() for _ in range(rows)])
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.cast(arrow_schema_of(table))


def arrow_schema_of(table: pa.Table) -> pa.Schema:
    kind = "turns" if "turn" in table.column_names else "training_rows"
    return arrow_schema(kind)


@pytest.mark.slow
def test_the_shipped_questions_read_few_of_the_bytes_of_a_run_of_long_texts(sample, tmp_path):
    long = Store.open(str(tmp_path / "long"))
    for ref in sample.stages("sample"):
        manifest = sample.manifest(ref)
        tables = {part["table"]: sample.read(ref, part["table"]) for part in manifest["parts"]}
        if "turns" in tables:
            tables["turns"] = longer(
                tables["turns"],
                ("context_ids", "response_ids"),
                ("response_logprobs",),
                ("observation", "response"),
                LONG,
            )
        if "training_rows" in tables:
            tables["training_rows"] = longer(
                tables["training_rows"], ("token_ids",), ("weights", "logprobs"), (), 20 * LONG
            )
        long.commit(
            ref.key, tables, fingerprint=ref.fingerprint, settings=manifest["settings"], metrics=manifest["metrics"]
        )
    export_to_hub(long, "sample", tmp_path / "export")
    size = sum(path.stat().st_size for path in (tmp_path / "export").rglob("*.parquet"))
    shares = {}
    with serving(tmp_path / "export") as server:
        for path in QUESTIONS:
            before = server.sent
            assert answers(Store.open(server.address, reading=True), path.read_text()) == answers(
                long, path.read_text()
            )
            shares[path.stem] = (server.sent - before) / size
    # Questions about weights read one block of 1 MB beyond the columns, which take next to none.
    assert max(shares.values()) < 0.04, shares
    assert sum(share < 0.01 for share in shares.values()) >= 18, shares
