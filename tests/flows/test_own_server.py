"""`r3l up` as a person pastes it: a real server that refuses what it should, a run of the registered flow, and `r3l
down`."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

from r3l.store.check import check_run
from r3l.store.stage import Store
from r3l.system.memory import THRESHOLDS
from r3l.system.ports import free_port
from tests.flows.small import small_config
from tests.support.prefect_world import BIN, ENDED, SECURED, wait

FORM = {"Content-Type": "application/json"}
POOL = {"name": "planted", "type": "process"}


def test_the_ephemeral_server_asks_for_a_key_and_a_token(prefect_server):
    api, (user, password) = PREFECT_API_URL.value(), PREFECT_API_AUTH_STRING.value().split(":")
    assert httpx.get(f"{api}/admin/version").status_code == 401
    foreign = httpx.get(f"{api}/admin/version", auth=(user, password), headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 200
    assert "access-control-allow-origin" not in foreign.headers
    assert httpx.post(f"{api}/work_pools/", json=POOL, auth=(user, password)).status_code == 403  # no CSRF token


def test_the_server_looks_for_garbage_rarely(monkeypatch):
    """A collection may end a cursor of SQLite's, and then holds every thread until that connection's statement ends."""
    from flows.serving import guarded

    before, seen = gc.get_threshold(), []
    monkeypatch.setattr(guarded, "guarded_app", lambda origins, names: None)
    monkeypatch.setattr(guarded.uvicorn, "run", lambda app, **how: seen.append(gc.get_threshold()))
    try:
        guarded.serve("127.0.0.1", 1, [])
    finally:
        gc.set_threshold(*before)
    assert seen == [THRESHOLDS]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_up_starts_a_server_that_runs_an_iteration_and_down_stops_it(tmp_path):
    port, home = free_port(), tmp_path / ".prefect"
    environment = {
        name: value for name, value in os.environ.items() if name not in SECURED | {"PREFECT_API_URL", "PREFECT_HOME"}
    } | {"R3L_HOME": str(tmp_path), "PREFECT_WORKER_QUERY_SECONDS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(Path.cwd())

    def r3l(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli.app", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    try:
        key = (output := r3l("up", "--port", str(port))).split("its password")[1].split()[0]
        api, auth = f"http://127.0.0.1:{port}/api", tuple(key.split(":"))
        assert f"http://127.0.0.1:{port}\n" in output
        assert all(key not in path.read_text() for path in home.glob("*.log"))
        refusals(api, auth)
        config = json.loads(small_config(tmp_path / "store").model_dump_json())
        for iteration in (0, 1):
            r3l("prefect", "deployment", "run", "r3l/iterate", "--params", json.dumps({"config": config}))
            states = wait("the flow run", 300, lambda: ended(r3l("prefect", "flow-run", "ls", "--output", "json")))
            assert states == ["COMPLETED"] * (iteration + 1)
            assert (tmp_path / "store" / "small" / f"iteration={iteration:05}" / "updates" / "stage.json").is_file()
            [warm] = wait("the warm process", 60, lambda: [*filter(Path.is_socket, home.glob("warm-*"))])
    finally:
        said = r3l("down")
    assert said.strip() == "stopped: worker, server"
    assert len((home / "warm.log").read_text().splitlines()) == 1, "the second flow run was forked"
    wait("the end of the warm process", 30, lambda: not warm.exists())
    assert check_run(Store.open(str(tmp_path / "store")), "small") == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{api}/health")


def ended(said: str) -> list[str]:
    """The states of the flow runs, empty until all have ended."""
    states = [run["state_type"] for run in json.loads(said)]
    return states if set(states) <= ENDED else []


def refusals(api: str, auth: tuple[str, ...]) -> None:
    """Everything that a page of another site can try is refused, and nothing is made."""
    assert httpx.get(f"{api}/admin/version").status_code == 401
    assert httpx.get(f"{api[:-4]}/ui-settings").json()["auth"] == "BASIC", (
        "the UI learns that it has to ask for the key"
    )
    assert all("Prefect REST" not in httpx.get(f"{api[:-4]}/{page}").text for page in ("docs", "redoc", "openapi.json"))
    assert httpx.get(f"{api}/admin/version", auth=("r3l", "wrong")).status_code == 401
    assert httpx.get(f"{api}/admin/version", auth=auth).status_code == 200
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    for headers in (evil, {"Origin": "null"}, {"Content-Type": "text/plain"} | evil, {"Sec-Fetch-Site": "cross-site"}):
        assert (
            httpx.post(f"{api}/work_pools/", content=json.dumps(POOL), headers=FORM | headers, auth=auth).status_code
            == 403
        )
    assert httpx.get(f"{api}/admin/version", headers={"Host": "evil.example"}, auth=auth).status_code == 400
    token = httpx.get(f"{api}/csrf-token", params={"client": "test"}, auth=auth).json()["token"]
    csrf = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "test"}
    assert httpx.post(f"{api}/work_pools/filter", json={}, headers=csrf, auth=auth).status_code == 200
    pools = httpx.post(f"{api}/work_pools/filter", json={}, headers=csrf, auth=auth).json()
    assert [pool["name"] for pool in pools] == ["r3l"]
