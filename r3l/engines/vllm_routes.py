"""One vLLM server over HTTP: its routes, in token ids. Seen with vLLM 0.32; needs the start options of infra/engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from r3l.engines.base import Completion, PolicySnapshot, Sampling
from r3l.errors import EngineError

WHOLE_DISTRIBUTION = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said in every call: else vLLM takes them from the policy's generation_config.json (top_p 0.8 and more for Qwen2.5)."""


class ServerGone(Exception):
    """A failure that another server, or the same one later, may not have: worth another try."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # of the HTTP answer; 0: there was none


class VllmRoutes:
    """What one server is asked. `model` is the name that requests use: the served model, or the adapter loaded last."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url.rstrip("/")
        self.client = client
        self.served = ""  # name of the served model
        self.model = ""
        self.adapter = ""
        self.length = 0  # its context limit
        self.in_flight = 0
        self.equipped = False  # it answers, and runs the policy asked for
        self.refusal = ""  # why it could not be won back

    async def ask(self, method: str, route: str, **options: Any) -> httpx.Response:
        """Raises `ServerGone` where another try may help, `EngineError` where the request itself is refused."""
        try:
            response = await self.client.request(method, f"{self.url}{route}", **options)
        except httpx.TransportError as error:
            raise ServerGone(f"{self.url}{route}: {type(error).__name__} {error}") from error
        if response.status_code >= 500 or response.status_code in (404, 408, 429):
            raise ServerGone(f"{self.url}{route}: status {response.status_code}: {response.text[:300]}", response.status_code)
        if response.status_code >= 400:
            raise EngineError(f"{self.url}{route}: status {response.status_code}: {response.text[:500]}")
        return response

    async def look(self) -> None:
        """Whether it answers, what it serves and how long a context it takes."""
        await self.ask("GET", "/health")
        models = (await self.ask("GET", "/v1/models")).json()["data"]
        base = next(model for model in models if not model.get("parent"))
        self.served, self.length = str(base["id"]), int(base.get("max_model_len") or 0)

    async def load(self, snapshot: PolicySnapshot) -> None:
        """Make it run `snapshot`: an adapter by its own name, full weights in place with the prefix cache dropped."""
        if snapshot.base_path:
            await self._load_adapter(snapshot)
        else:
            await self._development("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": snapshot.path}})
            reset = await self._development("/reset_prefix_cache", {})
            if reset.content and reset.json().get("success") is False:
                raise ServerGone(f"{self.url} did not reset its prefix cache: requests are still running there")
            self.model = self.served

    async def complete(self, prompt: Sequence[int], sampling: Sampling, limit: int) -> Completion:
        room = min(sampling.max_tokens, limit - len(prompt))
        body: dict[str, Any] = {
            "model": self.model, "prompt": list(prompt), "max_tokens": room, "temperature": sampling.temperature,
            "seed": sampling.seed, "stop_token_ids": list(sampling.stop_token_ids), "ignore_eos": True, "logprobs": 0,
            "return_token_ids": True, "skip_special_tokens": False, **WHOLE_DISTRIBUTION,
        }
        if sampling.json_schema is not None:
            body["structured_outputs"] = {"json": sampling.json_schema}
        answer = (await self.ask("POST", "/v1/completions", json=body)).json()
        return completion(answer, sampling, room, self.url)

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        body = {"model": self.model, "prompt": list(token_ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        choice = (await self.ask("POST", "/v1/completions", json=body)).json()["choices"][0]
        found = choice.get("prompt_logprobs")
        if not found or len(found) != len(token_ids):
            raise EngineError(f"{self.url} gave no prompt_logprobs for {len(token_ids)} tokens: expected a vLLM server")
        return [float(place[str(token)]["logprob"]) for place, token in zip(found[1:], token_ids[1:], strict=True)]

    async def _load_adapter(self, snapshot: PolicySnapshot) -> None:
        name = f"r3l-{snapshot.digest}"
        if name != self.adapter:
            body = {"lora_name": name, "lora_path": snapshot.path, "load_inplace": True}
            await self._development("/v1/load_lora_adapter", body)
            if self.adapter:
                await self._development("/v1/unload_lora_adapter", {"lora_name": self.adapter})
        self.model = self.adapter = name

    async def _development(self, route: str, body: dict[str, Any]) -> httpx.Response:
        """The routes that vLLM only has when it is started with its development options."""
        try:
            return await self.ask("POST", route, json=body)
        except ServerGone as error:
            if error.status == 404 and "does not exist" not in str(error):
                raise EngineError(f"{self.url} has no route {route}: start it with VLLM_SERVER_DEV_MODE=1 and "
                                  "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, as infra/engine/serve.sh does") from error
            raise


def completion(answer: dict[str, Any], sampling: Sampling, room: int, url: str) -> Completion:
    """The server's answer, checked: as many log-probabilities as ids, and a stop only by a token asked for."""
    choice = answer["choices"][0]
    ids = choice.get("token_ids")
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    if ids is None or logprobs is None or len(ids) != len(logprobs):
        raise EngineError(f"{url} gave {len(ids or [])} token ids and {len(logprobs or [])} log-probabilities: expected as many "
                          "of both; return_token_ids needs vLLM 0.10 or newer")
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    if choice["finish_reason"] == "stop":
        if not ids or ids[-1] not in sampling.stop_token_ids:
            raise EngineError(f"{url} stopped after token {ids[-1] if ids else None}, expected one of {sampling.stop_token_ids}")
        return Completion(list(ids), list(logprobs), "stop", cached)
    if choice["finish_reason"] != "length":
        raise ServerGone(f"{url} ended a reply with {choice['finish_reason']!r}")
    return Completion(list(ids), list(logprobs), "length" if room >= sampling.max_tokens else "context", cached)
