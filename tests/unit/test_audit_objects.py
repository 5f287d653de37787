"""The audit over an object store: the same locked connection reads it, through the file system that the store
registers."""

import httpx
import pytest

from r3l.audit.lines import Line, iterations
from r3l.audit.reader import Reader
from r3l.audit.report import render
from r3l.audit.web.sandbox import SqlBox
from r3l.errors import StoreError
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

moto = pytest.importorskip("moto.server", reason="moto is not installed: uv pip install 'r3l[dev]'")


@pytest.fixture
def store(monkeypatch, tmp_path):
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_REGION": "us-east-1",
        "R3L_CACHE": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    httpx.put(f"http://{host}:{port}/audit").raise_for_status()
    yield Store.open("s3://audit/runs")
    server.stop()


@pytest.mark.slow
def test_a_store_of_objects_is_read_like_any_other(store):
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
