"""The key of a vLLM server: on every route, loaded as vLLM loads it, and no server without one beyond loopback."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

ROOT = Path(__file__).parents[2]
SERVE = ROOT / "infra" / "engine" / "serve.sh"
LAUNCH = ROOT / "r3l" / "engines" / "vllm" / "launch"
KEY = "engine-key-1"
ROUTES = ["/v1/completions", "/collective_rpc", "/reset_prefix_cache", "/v1/load_lora_adapter", "/metrics", "/health/x"]


@pytest.fixture
def client(monkeypatch) -> TestClient:
    """A stand-in with vLLM's routes behind the middleware, found by the path that serve.py names."""
    monkeypatch.setenv("R3L_ENGINE_KEY", KEY)
    return TestClient(served())


def served() -> FastAPI:
    found = importlib.util.spec_from_file_location("require_key", LAUNCH / "require_key.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    app = FastAPI()
    app.add_middleware(module.RequireKey)
    app.api_route("/{path:path}", methods=["GET", "POST", "OPTIONS"])(lambda path: {"reached": path})

    @app.websocket("/v1/realtime")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("reached")
        await socket.close()

    return app


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_every_route_asks_for_the_key(client, route, method):
    assert client.request(method, route).status_code == 401
    assert client.request(method, route, headers={"Authorization": f"Bearer {KEY}x"}).status_code == 401
    assert client.request(method, route, headers={"Authorization": KEY}).status_code == 401
    assert client.request(method, route, headers={"Authorization": f"Bearer {KEY}"}).json() == {"reached": route[1:]}


def test_a_health_probe_needs_no_key(client):
    assert client.get("/health").status_code == 200


def test_a_websocket_asks_for_it_too(client):
    with pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)), client.websocket_connect("/v1/realtime"):
        pass
    with client.websocket_connect("/v1/realtime", headers={"Authorization": f"Bearer {KEY}"}) as socket:
        assert socket.receive_text() == "reached"


def test_it_does_not_start_without_a_key(monkeypatch):
    monkeypatch.setenv("R3L_ENGINE_KEY", "")
    with pytest.raises(ValueError, match="R3L_ENGINE_KEY is not set"):
        TestClient(served()).get("/health")


@pytest.mark.parametrize(("environment", "code", "said"), [
    ({"HOST": "0.0.0.0"}, 2, "set R3L_ENGINE_KEY"),
    ({"HOST": "0.0.0.0", "R3L_ENGINE_KEY": KEY}, 0, "--middleware require_key.RequireKey"),
    ({}, 0, "--host 127.0.0.1"),
])  # fmt: skip
def test_serve_sh_listens_elsewhere_only_with_a_key(tmp_path, environment, code, said):
    """`ENGINE_PYTHON` stands in for vLLM and prints what it was started with."""
    (tmp_path / "vllm/entrypoints/openai").mkdir(parents=True)
    (tmp_path / "vllm/entrypoints/openai/api_server.py").write_text(
        "import os, sys; print(*sys.argv[1:], 'path=' + os.environ['PYTHONPATH'].split(':')[0])"
    )
    bare = {name: os.environ[name] for name in ("PATH",)}
    done = subprocess.run(
        ["bash", str(SERVE), "policy"],
        env=bare | {"ENGINE_PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert KEY not in done.stdout, "the command line is seen by every user"
    if "middleware" in said:
        path = {"PYTHONPATH": done.stdout.split("path=")[1].strip()}
        assert subprocess.run([sys.executable, "-c", "import require_key"], env=bare | path).returncode == 0
