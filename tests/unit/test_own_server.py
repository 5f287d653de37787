"""The project's own Prefect server: its key, who is told it, and what is refused."""

import logging
import os
import signal
import subprocess
import sys
import threading

import pytest
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from flows import prefect_settings
from flows.own_server import STATE, Own, key_of, own_server, remember
from flows.serving import background
from r3l.audit.web.access import HOSTS, RefuseOtherSites
from r3l.errors import ConfigError
from r3l.store.files.process import mark

NAMES = (
    "PREFECT_API_URL",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_PROFILES_PATH",
    "PREFECT_PROFILE",
)
OWN = Own("http://127.0.0.1:4200/api", "r3l:secret", {})


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """No server named, and a PREFECT_HOME of its own."""
    monkeypatch.setattr(
        os,
        "environ",
        {name: value for name, value in os.environ.items() if name not in NAMES} | {"PREFECT_HOME": str(tmp_path)},
    )
    return os.environ


def test_the_key_is_made_once_and_read_by_its_owner_alone(tmp_path):
    folder, found = tmp_path / "prefect", []
    threads = [threading.Thread(target=lambda: found.append(key_of(folder))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {key_of(folder)}
    user, _, password = found[0].partition(":")
    assert (user, len(password)) == ("r3l", 48)
    assert [(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()] == [("r3l-key", 0o600)]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_key_that_others_can_read_is_refused(tmp_path):
    key_of(tmp_path)
    (tmp_path / "r3l-key").chmod(0o640)
    with pytest.raises(ConfigError, match="delete the file"):
        key_of(tmp_path)


def test_a_server_is_found_while_it_lives(tmp_path):
    assert own_server(tmp_path) is None
    own = Own(OWN.api, key_of(tmp_path), {"server": mark()})
    remember(tmp_path, own)
    assert own_server(tmp_path) == own
    remember(tmp_path, Own(own.api, own.key, {"server": mark(2**22 + 1)}))
    assert own_server(tmp_path) is None
    for damage in ("", "[]", '{"api": 1, "processes": []}'):
        (tmp_path / STATE).write_text(damage)
        assert own_server(tmp_path) is None


def test_the_key_goes_to_the_project_s_own_server_and_to_no_other(environment):
    prefect_settings.reach(OWN)
    assert (environment["PREFECT_API_URL"], environment["PREFECT_API_AUTH_STRING"]) == (OWN.api, OWN.key)
    del environment["PREFECT_API_AUTH_STRING"]
    environment["PREFECT_API_URL"] = "http://elsewhere.example/api"
    prefect_settings.reach(OWN)
    assert "PREFECT_API_AUTH_STRING" not in environment


def test_a_server_that_a_profile_names_is_given_no_key(environment, tmp_path):
    (tmp_path / "profiles.toml").write_text(
        'active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://elsewhere.example/api"\n'
    )
    prefect_settings.reach(OWN)
    prefect_settings.reach(None)
    assert not environment.keys() & {"PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"}


def test_an_ephemeral_server_has_a_key_of_its_own_that_its_clients_know(environment):
    prefect_settings.reach(None)
    key = environment["PREFECT_SERVER_API_AUTH_STRING"]
    assert len(key) == len("r3l:") + 48
    assert environment["PREFECT_API_AUTH_STRING"] == key
    prefect_settings.reach(None)  # by another module of the same process
    assert environment["PREFECT_SERVER_API_AUTH_STRING"] == key


def test_prefect_s_folder_is_made_for_its_owner_alone_however_deep(environment, tmp_path):
    del environment["PREFECT_HOME"]
    environment["R3L_HOME"] = str(tmp_path / "not" / "there")
    prefect_settings.apply()
    folder = tmp_path / "not" / "there" / ".prefect"
    assert environment["PREFECT_HOME"] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("level", "quiet", "shown"),
    [(None, False, "INFO"), (None, True, "WARNING"), ("DEBUG", False, "DEBUG"), ("error", False, "WARNING")],
)
def test_what_the_project_logs_reaches_prefect_from_info_on_and_a_quiet_terminal_from_warnings_on(
    environment, level, quiet, shown
):
    for name in prefect_settings.LOGGING:
        environment.pop(name, None)
    if level:
        environment["PREFECT_LOGGING_LEVEL"] = level
    before = logging.getLogger("r3l").level
    try:
        prefect_settings.apply(quiet=quiet)
        assert logging.getLevelName(logging.getLogger("r3l.pipeline").getEffectiveLevel()) == shown
    finally:
        logging.getLogger("r3l").setLevel(before)


@pytest.fixture(scope="module")
def client():
    """What `guarded` puts around Prefect's app, around an app that answers anything."""

    async def answer(_):
        return PlainTextResponse("here")

    app = Starlette(routes=[Route("/api/flows", answer, methods=["GET", "POST"])])
    app.add_middleware(RefuseOtherSites, origins=["http://localhost:4200"])
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)
    return TestClient(app, base_url="http://127.0.0.1:4200")


@pytest.mark.parametrize(("method", "headers", "status"), [
    ("POST", {}, 200),
    ("GET", {}, 200),  # a client that is no browser
    (
        "POST",
        {"origin": "http://localhost:4200", "sec-fetch-site": "cross-site"},
        200,
    ),  # the UI under the other name of this machine
    ("POST", {"sec-fetch-site": "same-origin"}, 200),
    ("GET", {"sec-fetch-site": "none"}, 200),
    ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),  # a link that a person followed
    ("POST", {"origin": "https://evil.example"}, 403),
    ("GET", {"origin": "https://evil.example"}, 403),
    ("POST", {"origin": "null"}, 403),
    (
        "POST",
        {"origin": "http://localhost:4201", "sec-fetch-site": "same-site"},
        403,
    ),  # another server of this machine
    (
        "POST",
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        403,
    ),  # a form
    ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ("GET", {"sec-fetch-site": "same-site"}, 403),
    ("GET", {"host": "evil.example:4200"}, 400),
    ("POST", {"host": "127.0.0.1.evil.example"}, 400),
    ("GET", {"host": "[::1]:4200"}, 200),
])  # fmt: skip
def test_pages_of_other_sites_and_other_names_are_refused(client, method, headers, status):
    assert client.request(method, "/api/flows", headers=headers).status_code == status


def test_down_stops_what_runs_the_worker_first_and_forgets_it(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "STOP_S", 1.0)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    started = {
        name: subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
        for name, code in (("server", "import time; print('hears', flush=True); time.sleep(60)"), ("worker", deaf))
    }
    for process in started.values():
        process.stdout.readline()
    reaped = [threading.Thread(target=process.wait) for process in started.values()]
    for thread in reaped:
        thread.start()
    remember(tmp_path, Own(OWN.api, key_of(tmp_path), {name: mark(process.pid) for name, process in started.items()}))
    assert background.down(tmp_path) == ["worker", "server"]
    assert [started[name].wait(5) for name in ("server", "worker")] == [-signal.SIGTERM, -signal.SIGKILL]
    assert own_server(tmp_path) is None
    assert background.down(tmp_path) == []


def test_a_worker_whose_server_has_ended_is_stopped_as_well(tmp_path):
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    threading.Thread(target=worker.wait, daemon=True).start()
    remember(tmp_path, Own(OWN.api, key_of(tmp_path), {"server": mark(2**22 + 1), "worker": mark(worker.pid)}))
    assert own_server(tmp_path) is None
    assert background.down(tmp_path) == ["worker"]
    assert worker.wait(5) == -signal.SIGTERM
