"""The audit over an object store: the same locked connection reads it, through the file system that the store
registers."""

import pytest

from r3l.audit.lines import Line, iterations
from r3l.audit.reader import Reader
from r3l.audit.report import render
from r3l.audit.web.sandbox import SqlBox
from r3l.errors import StoreError
from r3l.store.stage import Store
from tests.support.object_server import endpoint, make_bucket
from tests.support.store_iteration import commit_iteration

__all__ = ["endpoint"]


@pytest.mark.slow
def test_a_store_of_objects_is_read_like_any_other(endpoint, monkeypatch, tmp_path):
    store = Store.open(make_bucket(endpoint, "audit", tmp_path, monkeypatch))
    commit_iteration(store)
    reader = Reader(store)
    assert [row["base_reward"] for row in iterations(reader, Line("demo"))] == [0.25]
    assert "iteration=0/task=0/retry=0" in render(reader, Line("demo"))
    box = SqlBox(store)
    assert box.ask("SELECT count(*) FROM pivots").rows == [(2,)]
    with pytest.raises(StoreError):
        box.ask("SELECT content FROM read_text('s3://audit/other')")
    reader.close()
    box.close()
