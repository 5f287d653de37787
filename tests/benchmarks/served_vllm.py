"""A vLLM server of a policy for the time of a benchmark, started by infra/engine/serve.sh, with the CPU seconds that it
spends."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from r3l.system.ports import free_port

SERVE = Path(__file__).parent.parent.parent / "infra/engine/serve.sh"


@contextmanager
def serving(
    policy: str, dtype: str, environment: str, log: Path, seconds: float = 1800
) -> Iterator[tuple[str, Callable[[], float]]]:
    """(address, CPU seconds of the server and all its processes so far); waits up to `seconds` until it is healthy."""
    port = free_port()
    command = [str(SERVE), policy, str(port), "--dtype", dtype]
    settings = {"ENGINE_ENV": environment, "CONTEXT": "2048", "LORA_RANK": "0", "HF_HUB_OFFLINE": "1"}
    with log.open("w") as output:
        server = subprocess.Popen(command, env=os.environ | settings, stdout=output, stderr=output)
    try:
        wait_until_healthy(server, f"http://127.0.0.1:{port}", time.monotonic() + seconds, log)
        process = psutil.Process(server.pid)
        yield (
            f"http://127.0.0.1:{port}",
            lambda: sum(spent(part) for part in [process, *process.children(recursive=True)]),
        )
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_until_healthy(server: subprocess.Popen[bytes], url: str, deadline: float, log: Path) -> None:
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended before it was healthy: {log}")
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise RuntimeError(f"the server is not healthy: {log}")


def spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
