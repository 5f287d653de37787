"""An iteration across hosts under fire, against the same iteration in one process: `python -m
tests.benchmarks.cluster_trial [FOLDER]`.

Hosts are network namespaces with their own addresses: Prefect's server on PostgreSQL, an S3-speaking store (moto), a
scripted engine that speaks vLLM's routes, two workers, and the flow; the update is taken by torchrun with two gloo
ranks. In the midst of it a worker's host is killed, the engine is killed, the other worker's network is cut for ten
seconds, and PostgreSQL is restarted. Needs root, iproute2 and PostgreSQL's programs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from r3l.config import Config, compose
from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.benchmarks.namespaces import NETWORK, Host, network
from tests.flows.scripted import deterministic

PYTHON = sys.executable
PREFECT = str(Path(PYTHON).parent / "prefect")
SHARDS, CUT_S, PATIENCE_S = 5, 10.0, 900.0
ITERATE = (
    "import sys; from flows.iterate import iterate; from r3l.config import Config; "
    "iterate(Config.model_validate_json(sys.argv[1]))"
)
POSTGRES = next((path for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), Path("/usr/bin"))
NAMES = ["db", "server", "store", "engine", "worker-a", "worker-b", "flow"]


class Trial:
    def __init__(self, folder: Path, hosts: dict[str, Host]) -> None:
        self.folder, self.hosts, self.seen = folder, hosts, dict[str, Any]()
        self.api = f"http://{hosts['server'].address}:4200/api"
        self.engine_url = f"http://{hosts['engine'].address}:8000"
        self.keys = {
            "AWS_ENDPOINT_URL": f"http://{hosts['store'].address}:5000",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "AWS_REGION": "us-east-1",
        }
        self.client = {
            "PREFECT_API_URL": self.api,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            **self.keys,
        }

    def config(self, root: str, *assignments: str) -> Config:
        return compose(
            environment="household",
            run="trial",
            assignments=[
                f"rollout.tasks={SHARDS}",
                "rollout.group_size=4",
                "rollout.tasks_per_shard=1",
                "environment.level=easy",
                "environment.max_turns=10",
                "environment.reply_tokens=80",
                "engine.kind=vllm_server",
                f'engine.urls="{self.engine_url}"',
                "engine.health_s=1",
                "engine.timeout_s=120",
                f'store.root="{root}"',
                *assignments,
            ],
        )

    def postgres(self) -> None:
        self.hosts["db"].start(
            "postgres",
            str(POSTGRES / "postgres"),
            "-D",
            str(self.folder / "db"),
            "-c",
            "listen_addresses=*",
            "-c",
            f"unix_socket_directories={self.folder / 'db'}",
            user="postgres",
        )
        wait(
            "PostgreSQL",
            60,
            lambda: (
                subprocess.run(
                    [str(POSTGRES / "pg_isready"), "-h", self.hosts["db"].address], capture_output=True, check=False
                ).returncode
                == 0
            ),
        )

    def engine(self) -> None:
        self.hosts["engine"].start(
            "engine",
            PYTHON,
            "-m",
            "tests.support.scripted_player",
            "--host",
            self.hosts["engine"].address,
            "--port",
            "8000",
            "--pause",
            "0.3",
        )
        wait("the engine", 120, lambda: answers(f"{self.engine_url}/health"))

    def worker(self, name: str) -> None:
        self.hosts[name].start(
            name,
            PREFECT,
            "worker",
            "start",
            "--pool",
            "r3l",
            "--limit",
            "2",
            "--name",
            name,
            R3L_CACHE=str(self.folder / f"cache-{name}"),
            **self.client,
        )

    def begin(self) -> None:
        """Everything but the flow."""
        data = self.folder / "db"
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
        subprocess.run(
            ["runuser", "-u", "postgres", "--", str(POSTGRES / "initdb"), "-D", str(data), "-A", "trust"],
            check=True,
            capture_output=True,
        )
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK}.0/24 trust\n")
        self.postgres()
        subprocess.run(
            [str(POSTGRES / "createdb"), "-h", self.hosts["db"].address, "-U", "postgres", "prefect"], check=True
        )
        database = f"postgresql+asyncpg://postgres@{self.hosts['db'].address}:5432/prefect"
        self.hosts["server"].start(
            "server",
            PREFECT,
            "server",
            "start",
            "--host",
            "0.0.0.0",
            "--port",
            "4200",
            PREFECT_HOME=str(self.folder / "server-home"),
            PREFECT_API_DATABASE_CONNECTION_URL=database,
            PREFECT_SERVER_ANALYTICS_ENABLED="false",
        )
        self.hosts["store"].start("store", PYTHON, "-m", "moto.server", "-H", "0.0.0.0", "-p", "5000")
        self.engine()
        wait("the store", 120, lambda: answers(self.keys["AWS_ENDPOINT_URL"]))
        httpx.put(f"{self.keys['AWS_ENDPOINT_URL']}/trial").raise_for_status()
        wait("Prefect's server", 240, lambda: answers(f"{self.api}/health"))
        for words in (
            ("work-pool", "create", "r3l", "--type", "process"),
            ("deploy", "--name", "update", "--name", "shard"),
        ):
            subprocess.run(
                [PREFECT, "--no-prompt", *words], env=os.environ | self.client, check=True, capture_output=True
            )

    def iterate(self, config: Config, log: str) -> subprocess.Popen[bytes]:
        return self.hosts["flow"].start(
            log,
            PYTHON,
            "-c",
            ITERATE,
            config.model_dump_json(),
            R3L_CACHE=str(self.folder / "cache-flow"),
            **self.client,
        )

    def runs(self, *states: str) -> list[dict[str, Any]]:
        """Flow runs, those of workers alone, in these states (none: all)."""
        found = httpx.post(f"{self.api}/flow_runs/filter", json={}, timeout=60).json()
        return [run for run in found if run["deployment_id"] and (not states or run["state"]["type"] in states)]

    def under_fire(self, process: subprocess.Popen[bytes], store: Store) -> None:
        """The four faults, one after the other, each once the iteration has gone on since the last."""

        def sampled(number: int) -> Callable[[], bool]:
            """Whether so many shards have their bases, or the flow has ended."""
            return lambda: (
                process.poll() is not None
                or sum(
                    "/base/shard" in path and path.endswith("stage.json")
                    for path in store.files.paths("trial/iteration=00000")
                )
                >= number
            )

        wait("the first base", PATIENCE_S, sampled(1))
        self.note("worker-a killed, processes", self.hosts["worker-a"].kill())
        wait("another base", PATIENCE_S, sampled(2))
        self.hosts["engine"].kill()
        time.sleep(3)
        self.engine()
        self.note("engine killed and back", True)
        wait("a third base", PATIENCE_S, sampled(3))
        self.hosts["worker-b"].cut(CUT_S)
        self.note("network of worker-b cut, seconds", CUT_S)
        self.worker("worker-a")
        self.hosts["db"].kill()
        time.sleep(2)
        self.postgres()
        self.note("PostgreSQL killed and back", True)

    def note(self, what: str, value: Any) -> None:
        self.seen[what] = value
        print(f"{time.strftime('%H:%M:%S')} {what}: {value}", file=sys.stderr, flush=True)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code < 500
    except httpx.HTTPError:
        return False


def wait(what: str, seconds: float, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not after {seconds:g} s")
        time.sleep(0.5)


def ended(process: subprocess.Popen[bytes], log: Path) -> None:
    process.wait(PATIENCE_S)
    if process.returncode:
        raise AssertionError(f"the flow ended with {process.returncode}:\n{log.read_text()[-4000:]}")


def digests(store: Store) -> dict[str, str]:
    return {f"{ref.stage}/{ref.shard}": ref.digest for ref in store.stages("trial")}


def loss_of(store: Store) -> float:
    [ref] = [ref for ref in store.stages("trial") if ref.stage == "updates"]
    return float(store.read(ref, "updates", ["loss"]).to_pylist()[0]["loss"])


def trial(folder: Path, hosts: dict[str, Host]) -> dict[str, Any]:
    one = Trial(folder, hosts)
    one.begin()
    began = time.monotonic()
    ended(one.iterate(one.config(str(folder / "alone")), "alone"), folder / "alone.log")
    one.note("one process, seconds", round(time.monotonic() - began, 1))
    os.environ |= {**one.keys, "R3L_CACHE": str(folder / "cache-trial")}
    store, alone = Store.open("s3://trial/runs"), Store.open(str(folder / "alone"))
    for name in ("worker-a", "worker-b"):
        one.worker(name)
    began = time.monotonic()
    config = one.config(
        "s3://trial/runs",
        "placement.shards=workers",
        "placement.update_deployment=r3l-update/update",
        "placement.silent_s=15",
        "placement.heartbeat_s=1",
        "training.processes=2",
    )
    process = one.iterate(config, "across")
    fire = threading.Thread(target=one.under_fire, args=(process, store), daemon=True)
    fire.start()
    ended(process, folder / "across.log")
    fire.join(PATIENCE_S)
    one.note("across hosts under fire, seconds", round(time.monotonic() - began, 1))
    there, here = digests(store), digests(alone)
    one.note("stages", len(there))
    one.note("missing", sorted(here.keys() ^ there.keys()))
    one.note("other rows", [name for name, digest in here.items() if deterministic(name) and there.get(name) != digest])
    one.note(
        "equal deterministic stages",
        sum(deterministic(name) and there.get(name) == digest for name, digest in here.items()),
    )
    one.note("findings of r3l check", [str(finding) for finding in check_run(store, "trial")])
    one.note("losses", [loss_of(alone), loss_of(store)])
    states: dict[str, int] = {}
    for run in one.runs():
        states[run["state"]["type"]] = states.get(run["state"]["type"], 0) + 1
    one.note("flow runs of the workers", states)
    return one.seen


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="r3l-trial-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the hosts are taken down
    with network(folder, NAMES) as hosts:
        print(json.dumps(trial(folder, hosts), indent=1))


if __name__ == "__main__":
    main()
