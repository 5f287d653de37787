"""Serve a policy with vLLM: run by the interpreter of vLLM's own environment, so it needs nothing but Python.

    python serve.py [--guarded] POLICY [PORT] [further options of vLLM, e.g. --tensor-parallel-size 2]

POLICY is a folder that the server sees under the same path as the trainer does, or a hub name. What else it has to
know stands in the environment:

    CONTEXT                 context limit in tokens (20480)
    HOST                    where it listens (127.0.0.1)
    LORA_RANK               the largest rank of adapters: 8, 16, 32, 64 ... (16); 0: no adapters
    SLEEP                   1: it can be put to sleep, which frees the GPU for an update (0)
    R3L_ENGINE_KEY          a key, asked for on every route but /health
    VLLM_CPU_KVCACHE_SPACE  gigabytes for keys and values on a CPU (1)

On a CPU vLLM puts a thread on every core, and they wait for each other: where other work runs beside it, set
OMP_NUM_THREADS=1 and VLLM_CPU_OMP_THREADS_BIND=nobind.

With ``--guarded`` it serves as long as its standard input stays open: whoever started it holds the other end of that
pipe, and the kernel closes it however that process ends. Then vLLM and all its processes end.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

LOOPBACK = ("127.", "localhost", "::1")
GRACE_S = 10.0  # from SIGTERM to SIGKILL
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def options(policy: str, port: str, more: Sequence[str]) -> list[str]:
    """Make the command line of vLLM's server. Raise SystemExit where it would listen beyond this machine without a
    key."""
    context, host, rank = _said("CONTEXT", "20480"), _said("HOST", "127.0.0.1"), int(_said("LORA_RANK", "16"))
    # fmt: off
    words = [
        "--model", policy, "--host", host, "--port", port, "--max-model-len", context, "--enable-prefix-caching",
        "--enable-prompt-tokens-details", "--generation-config", "vllm", "--logprobs-mode", "raw_logprobs",
        "--structured-outputs-config.backend", "guidance",  # the backend that can be told where blanks go
    ]
    # fmt: on
    if _on_cpu():
        # Prompts whole, never in pieces: after a piece vLLM rewinds a seeded request's generator, which no CPU
        # generator can do, and ends.
        words += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", context]
    if rank > 0:  # two adapters: the next one is loaded before the last one goes
        words += ["--enable-lora", "--max-loras", "2", "--max-lora-rank", str(rank)]
    if _said("SLEEP", "0") != "0":
        words += ["--enable-sleep-mode"]
    if os.environ.get("R3L_ENGINE_KEY"):
        words += ["--middleware", "require_key.RequireKey"]
    elif not host.startswith(LOOPBACK):
        print(
            f"serve.py: HOST={host} is not loopback, and whoever reaches the server can load weights into it: set "
            "R3L_ENGINE_KEY",
            file=sys.stderr,
        )
        sys.exit(2)
    return [*words, *more]


def surroundings() -> dict[str, str]:
    """Make the environment of vLLM's server: its development routes, and the key, which a command line would show to
    every user."""
    key, here, paths = os.environ.get("R3L_ENGINE_KEY"), str(Path(__file__).parent), os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONSAFEPATH": "1",  # of the working folder no module is taken, here and in its engine processes
        "VLLM_CPU_NUM_OF_RESERVED_CPU": _said("VLLM_CPU_NUM_OF_RESERVED_CPU", "0"),
        "VLLM_CPU_KVCACHE_SPACE": _said("VLLM_CPU_KVCACHE_SPACE", "1"),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        **({"VLLM_API_KEY": key, "PYTHONPATH": f"{here}:{paths}" if paths else here} if key else {}),
    }


def guard(command: Sequence[str], environment: dict[str, str]) -> None:
    """Run vLLM until it ends or standard input does; then end every process of this process group, this one too."""
    if os.getpgrp() != os.getpid():
        os.setpgrp()  # what is ended below is this group, and must not be the caller's
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, preexec_fn=end_with_guard)
    threading.Thread(target=_until_closed, args=(end,), daemon=True).start()
    threading.Thread(target=_until_exit, args=(server, end), daemon=True).start()
    while not end.wait(1.0):  # in pieces: a signal's handler runs between them
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(GRACE_S)
    print(f"serve.py: vLLM ended with exit code {server.poll()}", file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGKILL)  # its engine processes, which outlive a server that was killed


def end_with_guard() -> None:
    """End vLLM with its guard: the kernel ends it if the guard itself is killed. Called in the new process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _until_closed(ended: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    ended.set()


def _until_exit(server: subprocess.Popen[bytes], ended: threading.Event) -> None:
    server.wait()
    ended.set()


def _on_cpu() -> bool:
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _said(name: str, otherwise: str) -> str:
    return os.environ.get(name) or otherwise


def main(words: Sequence[str]) -> None:
    """Serve; with ``--guarded`` as long as standard input is open."""
    has_guard = words[:1] == ["--guarded"]
    arguments = words[has_guard:]
    policy, port, *more = arguments if len(arguments) > 1 else [*arguments, "8000"]
    command = [sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server", *options(policy, port, more)]
    if has_guard:
        guard(command, surroundings())
    os.execve(sys.executable, command, surroundings())


if __name__ == "__main__":
    if not set(sys.argv[1:]) - {"--guarded"}:
        sys.exit(__doc__)
    main(sys.argv[1:])
