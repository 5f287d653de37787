"""What `python -m vllm.entrypoints.openai.api_server` is to `launch/serve.py` where no vLLM is at hand: a server
process that speaks the routes that are used, and has an engine process of its own, as vLLM has.

With VLLM_STAND_IN=embedded it samples from the policy by the embedded engine, so that log-probabilities are the
policy's; else its answers are scripted. It dies while it starts where VLLM_STAND_IN=broken.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from typing import Any

from tests.unit.scripted_vllm import ScriptedVllm

ENGINE_PROCESS = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"  # held by a kernel
)


class Sampling(ScriptedVllm):
    """The embedded engine behind vLLM's routes."""

    def __init__(self, model: str, context: int, **options: Any) -> None:
        from r3l.config.engines import TransformersLocalSettings
        from r3l.config.sections import PolicySettings
        from r3l.engines.embedded.engine import TransformersLocal

        self.context = context
        self.engine = TransformersLocal(TransformersLocalSettings(), PolicySettings(context_tokens=context))
        self.load(model)
        super().__init__(**options)

    def load(self, path: str) -> None:
        from r3l.engines.base import PolicySnapshot

        self.engine.load_policy(PolicySnapshot(path, path))

    def answer(self, route: str, body: dict[str, Any]) -> tuple[int, Any]:
        status, answer = super().answer(route, body)
        if route == "/v1/models":
            answer["data"][0]["max_model_len"] = self.context
        if route == "/collective_rpc" and status == 200:
            self.load(body["kwargs"]["weights_path"])
        return status, answer

    def completions(self, body: dict[str, Any]) -> tuple[int, Any]:
        from r3l.engines.base import Sampling

        if "prompt_logprobs" in body:
            scores = self.engine.score(body["prompt"])
            places = [{str(token): {"logprob": one}} for token, one in zip(body["prompt"][1:], scores, strict=True)]
            return 200, {"choices": [{"prompt_logprobs": [None, *places]}]}
        asked = Sampling(body["temperature"], body["max_tokens"], body["seed"], tuple(body["stop_token_ids"]))
        done = self.engine.complete("stand-in", body["prompt"], asked).result()
        logprobs, finish = {"token_logprobs": done.logprobs}, "stop" if done.finish_reason == "stop" else "length"
        return 200, {
            "choices": [{"token_ids": done.token_ids, "logprobs": logprobs, "finish_reason": finish}],
            "usage": {"prompt_tokens_details": {"cached_tokens": done.cached_tokens}},
        }


def main() -> None:
    told = argparse.ArgumentParser()
    for name in ("model", "host", "served-model-name", "middleware"):
        told.add_argument(f"--{name}", default="")
    told.add_argument("--port", type=int)
    told.add_argument("--max-model-len", type=int)
    told.add_argument("--enable-sleep-mode", action="store_true")
    given, others = told.parse_known_args()
    if os.environ.get("VLLM_STAND_IN") == "broken":
        sys.exit("RuntimeError: the GPU has no room")
    importlib.import_module(given.middleware.partition(".")[0])  # found as vLLM finds it
    subprocess.Popen([sys.executable, "-c", ENGINE_PROCESS])
    options = {
        "key": os.environ["VLLM_API_KEY"], "development": os.environ.get("VLLM_SERVER_DEV_MODE") == "1",
        "host": given.host, "port": given.port, "name": given.served_model_name, "sleeps": given.enable_sleep_mode,
    }  # fmt: skip
    print(f"GPU {os.environ.get('CUDA_VISIBLE_DEVICES')}: {given.model} {others}", flush=True)
    if os.environ.get("VLLM_STAND_IN") == "embedded":
        Sampling(given.model, given.max_model_len, **options)
    else:
        ScriptedVllm(**options, weights=given.model)
    time.sleep(3600)


if __name__ == "__main__":
    main()
