"""The puller gives no one without the key more than a refusal, and nobody all of its memory or threads."""

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from flows.placement import puller as module
from flows.placement.puller import MOST_BYTES, MOST_CONNECTIONS, Puller, PullerServer
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store

PLACE = "demo/policies/iteration=00003/policy"
KEYED = {"Authorization": "Bearer secret"}


@pytest.fixture
def server(tmp_path) -> Iterator[PullerServer]:
    (tmp_path / PLACE).mkdir(parents=True)
    (tmp_path / PLACE / "model.safetensors").write_bytes(b"weights")
    made = PullerServer(("127.0.0.1", 0), Puller(Store.open(str(tmp_path))), "secret")
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def url(server: PullerServer, path: str = "/pull") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}{path}"


def raw(server: PullerServer, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10)
    connection.sendall(content)
    return connection


def test_with_the_key_a_policy_is_pulled(server, tmp_path):
    asked = {"place": PLACE, "digest": snapshot_digest(tmp_path / PLACE)}
    answer = httpx.post(url(server), json=asked, headers=KEYED)
    assert (answer.status_code, answer.json()) == (200, {"path": str(tmp_path / PLACE)})
    assert httpx.get(url(server, "/health")).status_code == 200


def test_the_key_is_asked_for_before_the_body_is_read(server):
    """The client announces a body of a gigabyte and sends none of it: the answer comes all the same."""
    with raw(server, b"POST /pull HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
    assert httpx.post(url(server), content=b"x" * 50_000, headers={"Authorization": "Bearer no"}).status_code == 401


@pytest.mark.parametrize("length", ["1000000000", str(MOST_BYTES + 1), "-1", "1e3", "9" * 5_000, "\u0663", ""])
def test_a_body_without_a_fair_length_is_not_read(server, length):
    head = f"POST /pull HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: {length}\r\n\r\n"
    with raw(server, head.encode()) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b"[" * MOST_BYTES, b'{"place": 3}', b"\xff", b'{"place": "' + b"9" * 4_000 + b'"}']
)
def test_a_body_that_asks_for_nothing_is_answered_400(server, body):
    answer = httpx.post(url(server), content=body, headers=KEYED)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("expected JSON with place and digest: ")


@pytest.mark.parametrize(
    "place", ["../../etc", "demo/policies/iteration=00003/policy\n", "\x00", "a" * 3_000, "\ud800"]
)
def test_a_place_that_is_none_is_refused(server, place):
    answer = httpx.post(url(server), content=json.dumps({"place": place, "digest": "0" * 16}), headers=KEYED)
    assert answer.status_code == 503
    assert "expected RUN/policies" in answer.json()["error"]


def test_a_silent_client_is_given_up(server, monkeypatch):
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.1)
    head = b"POST /pull HTTP/1.1\r\nAuthorization: Bearer secret\r\nContent-Length: 100\r\n\r\n"
    with raw(server, head) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
    with raw(server, b"POST /pull") as connection:
        assert connection.recv(100) == b""


def test_one_connection_too_many_is_turned_away_and_room_is_made_again(server, monkeypatch):
    monkeypatch.setattr(module, "DRAIN_S", 0.1)
    waiting = [raw(server, b"") for _ in range(MOST_CONNECTIONS)]
    with raw(server, b"") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 503 ")
    for connection in waiting:
        connection.close()
    for _ in range(100):
        if (status := httpx.get(url(server, "/health")).status_code) == 200:
            break
    assert status == 200
