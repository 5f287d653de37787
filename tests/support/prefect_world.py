"""A real Prefect server on loopback, with a worker of the pool r3l: each a process of its own, in a folder of its
own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from flows.own_server import key_of
from r3l.system.ports import free_port

BIN = Path(sys.executable).parent
PREFECT = str(BIN / "prefect")
START_S = 180
BUSY_S = 60
# What `flows.prefect_settings` sets for the servers of this process; these are open, unless `variables` say otherwise.
SECURED = {"PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_SERVER_CSRF_PROTECTION_ENABLED"}
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


@dataclass(frozen=True)
class Served:
    """Where the server is, the environment of its clients, and where server and worker write what they say."""

    api: str
    environment: dict[str, str]
    folder: Path

    def prefect(self, *words: str) -> None:
        subprocess.run([PREFECT, "--no-prompt", *words], env=self.environment, check=True, capture_output=True)

    @property
    def key(self) -> str:
        return self.environment.get("PREFECT_API_AUTH_STRING", "")

    def answer(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask with the server's key and, where it wants one, a CSRF token; and again while it says 503, as Prefect's
        own client does: SQLite is busy."""
        user, _, password = self.key.partition(":")
        with httpx.Client(base_url=self.api, timeout=60, auth=(user, password) if password else None) as client:

            def unless_busy(method: str, path: str, body: Any = None) -> httpx.Response:
                return wait(
                    f"{method} {path}",
                    BUSY_S,
                    lambda: (found := client.request(method, path, json=body)).status_code != 503 and found,
                )

            token = unless_busy("GET", "/csrf-token?client=tests")
            if token.status_code == 200:
                client.headers.update({"Prefect-Csrf-Client": "tests", "Prefect-Csrf-Token": token.json()["token"]})
            return unless_busy(method, path, body)

    def asked(self, what: str, **filters: Any) -> list[dict[str, Any]]:
        """The rows of ``/<what>/filter``."""
        return list(self.answer("POST", f"/{what}/filter", filters).raise_for_status().json())

    def cancel(self, run: dict[str, Any]) -> None:
        """Do as the UI's button does."""
        asked = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
        self.answer("POST", f"/flow_runs/{run['id']}/set_state", asked).raise_for_status()

    def ended(self) -> dict[str, Any] | None:
        """The state of the first flow run that has ended."""
        return next((run["state"] for run in self.asked("flow_runs") if run["state"]["type"] in ENDED), None)


@contextmanager
def served(
    folder: Path, register: Sequence[Sequence[str]], guarded: bool = False, **variables: str
) -> Iterator[Served]:
    """Start the server, run the `register` commands against it, start the worker; stop both in the end.

    A `guarded` one is that of `r3l server`, with its key; the others are Prefect's own, open to all.
    `variables` are set for all of them, those that begin with PREFECT_SERVER_ for the server alone.
    """
    port = free_port()
    environment = (
        {name: value for name, value in os.environ.items() if name not in SECURED}
        | {
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "VENV": str(BIN.parent),
        }
        | variables
    )
    environment.pop("PREFECT_PROFILES_PATH", None)
    if guarded:
        environment["PREFECT_API_AUTH_STRING"] = key_of(folder / "prefect")
    clients = {name: value for name, value in environment.items() if not name.startswith("PREFECT_SERVER_")}
    found = Served(environment["PREFECT_API_URL"], clients, folder)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        command = [sys.executable, "-m", "flows.cli.app", "server"] if guarded else [PREFECT, "server", "start"]
        servers.append(start(Served(found.api, environment, folder), "server", "--port", str(port), command=command))
        wait("the server", START_S, lambda: healthy(found.api))
        for command in register:
            done = subprocess.run(list(command), env=clients, check=False, capture_output=True, text=True)
            assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        servers.append(start(found, "worker", "worker", "start", "--pool", "r3l"))
        yield found
    finally:
        for process in reversed(servers):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(to: Served, name: str, *words: str, command: Sequence[str] = (PREFECT,)) -> subprocess.Popen[bytes]:
    """A process of Prefect in a group of its own; what it says goes to ``<name>.log``."""
    with (to.folder / f"{name}.log").open("w") as log:
        return subprocess.Popen([*command, *words], env=to.environment, stdout=log, stderr=log, start_new_session=True)


def wait(what: str, seconds: float, condition: Callable[[], Any]) -> Any:
    """The first true answer of `condition` within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(1)
    raise AssertionError(f"{what}: not after {seconds} s")


def healthy(api: str) -> bool:
    try:
        return httpx.get(f"{api}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
