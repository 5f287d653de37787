"""What a call of a vLLM server costs its caller: `python -m tests.benchmarks.engine_calls [CALLS] [PROMPT] [REPLY]
[CONNECTIONS]`.

2,000 calls of 2,000 prompt tokens and 100 sampled ones, 256 in flight, against a server process that answers at once:
the processor's seconds of this process alone. It bounds how many calls a second one flow process can make, whatever the
servers can do.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from http.server import ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.vllm.server import VllmServer
from tests.unit import scripted_vllm
from tests.unit.scripted_vllm import STOP, ScriptedVllm


class Prompt(ScriptedVllm):
    """Answers with so many tokens, at once."""

    def __init__(self, reply: int) -> None:
        self.answered = {
            "choices": [
                {
                    "token_ids": [*range(reply - 1), STOP],
                    "logprobs": {"token_logprobs": [-0.53125] * reply},
                    "finish_reason": "stop",
                }
            ]
        }
        super().__init__()

    def answer(self, route: str, body: dict[str, Any]) -> tuple[int, Any]:
        if route == "/v1/completions":
            return 200, self.answered
        status, answer = super().answer(route, body)
        if route == "/v1/models":
            answer["data"][0]["max_model_len"] = 32768
        return status, answer


class Listening(ThreadingHTTPServer):
    request_queue_size = 1024


def serve(address: Connection, reply: int) -> None:
    scripted_vllm.ThreadingHTTPServer = Listening  # type: ignore[misc]
    address.send(Prompt(reply).url)
    address.recv()


def main(calls: int = 2000, prompt: int = 2000, reply: int = 100, connections: int = 256) -> None:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    server = spawn.Process(target=serve, args=(there, reply), daemon=True)
    server.start()
    engine = VllmServer(
        VllmServerSettings(urls=here.recv(), connections=connections), PolicySettings(context_tokens=32768)
    )
    engine.load_policy(PolicySnapshot("policies/7", "d7"))
    ids, sampling = list(range(prompt)), Sampling(1.0, reply, 3, (STOP,))
    began, worked = time.perf_counter(), time.process_time()
    for future in [engine.complete(f"iteration=0/task={k}/base=0/turn=0", ids, sampling) for k in range(calls)]:
        future.result()
    wall, cpu = time.perf_counter() - began, time.process_time() - worked
    print(
        f"{calls} calls of {prompt} + {reply} tokens: {1e3 * cpu / calls:.2f} ms of the processor a call here, so at "
        f"most {calls / cpu:.0f} calls/s a process; {calls / wall:.0f} calls/s on the clock, "
        f"{engine.counts()['retried_calls']:.0f} retried"
    )
    engine.close()
    here.send(None)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:5]))
