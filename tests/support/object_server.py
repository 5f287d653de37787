"""A real S3-speaking server on loopback, for the tests of a store in an object store."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """moto looks whether an object is there, and writes it later: another writer may have come between. S3 does both at
    once, and so does this server, since one request at a time writes."""
    from moto.s3.responses import S3Response

    one, put = threading.Lock(), S3Response.put_object

    def put_object(self: S3Response) -> Any:
        with one:
            return put(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "put_object", put_object)
        yield from serve()


def serve() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def make_bucket(endpoint: str, name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The root of a store in a new bucket, with the environment set so that this process reaches it."""
    for variable, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_REGION": "us-east-1",
        "R3L_CACHE": str(cache),
    }.items():
        monkeypatch.setenv(variable, value)
    httpx.put(f"{endpoint}/{name}", timeout=60).raise_for_status()
    return f"s3://{name}/runs"
