"""One vLLM server over HTTP: its routes, in token ids. Seen with vLLM 0.32; needs the start options of infra/engine."""

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from r3l.engines.base import Completion, PolicySnapshot, Sampling, with_blanks
from r3l.engines.vllm.http_clients import HttpClients
from r3l.errors import EngineError

WHOLE_DISTRIBUTION = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said in every call: else vLLM takes them from the policy's generation_config.json (top_p 0.8 and more for
Qwen2.5)."""


RANKS = (8, 16, 32, 64, 128, 256, 512)


class ServerGone(Exception):
    """A failure that another server, or the same one later, may not have: worth another try."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # of the HTTP answer; 0: there was none


class VllmRoutes:
    """What one server is asked. `model` is the name that requests use: the served model, or the adapter loaded last."""

    def __init__(self, url: str, client: HttpClients, puller_port: int = 0) -> None:
        self.url = url.rstrip("/")
        self.client = client
        self.served = ""  # name of the served model
        self.expected = ""  # what that name has to be; empty: any
        self.asleep = 0  # the level of its sleep
        self.model = ""
        self.adapter = ""
        self.length = 0  # its context limit
        self.puller = f"http://{urlsplit(self.url).netloc.rpartition(':')[0]}:{puller_port}" if puller_port else ""
        self.models: set[str] = set()  # names that it answers to
        self.calls: set[asyncio.Future[Completion]] = set()  # in flight
        self.named = False  # found by a name that may stop resolving to it
        self.missed = 0  # health checks in a row
        self.equipped = False  # it answers, and runs the policy asked for
        self.refusal = ""  # why it could not be won back

    @property
    def in_flight(self) -> int:
        return len(self.calls)

    async def ask(self, method: str, route: str, **options: Any) -> httpx.Response:
        """Send one request. Raise `ServerGone` where another try may help, `EngineError` where the request itself is
        refused."""
        address = route if route.startswith("http") else f"{self.url}{route}"
        try:
            response = await self.client.request(method, address, **options)
        except httpx.TransportError as error:
            raise ServerGone(f"{address}: {type(error).__name__} {error}") from error
        if response.status_code >= 500 or response.status_code in (404, 408, 429):
            raise ServerGone(f"{address}: status {response.status_code}: {response.text[:300]}", response.status_code)
        if response.status_code >= 400:
            raise EngineError(f"{address}: status {response.status_code}: {response.text[:500]}")
        return response

    async def look(self) -> None:
        """Ask whether it answers, what it serves and how long a context it takes."""
        await self.ask("GET", "/health")
        models = (await self.ask("GET", "/v1/models")).json()["data"]
        base = next(model for model in models if not model.get("parent"))
        self.served, self.length = str(base["id"]), int(base.get("max_model_len") or 0)
        if self.expected not in ("", self.served):
            raise ServerGone(f"{self.url} serves {self.served!r}, not {self.expected!r}: it is another server")
        self.models = {str(model["id"]) for model in models}

    def adopts(self, snapshot: PolicySnapshot) -> bool:
        """Take it as it is, where another client has loaded the policy. An adapter is known by its name; full weights
        have none, and are what the canary says."""
        name = adapter_name(snapshot) if snapshot.base_path else self.served
        if name not in self.models:
            return False
        self.model, self.adapter = name, name if snapshot.base_path else ""
        return True

    async def load(self, snapshot: PolicySnapshot) -> None:
        """Make it run `snapshot`: an adapter by its own name, full weights in place with the prefix cache dropped."""
        path = await self._pull(snapshot) if self.puller else snapshot.path
        read = await self._wake(snapshot.base_path or path)
        if snapshot.base_path:
            await self._load_adapter(snapshot, path)
        else:
            if not read:
                await self._read_weights(path)
            reset = await self._development("/reset_prefix_cache", {})
            if reset.content and reset.json().get("success") is False:
                raise ServerGone(f"{self.url} did not reset its prefix cache: requests are still running there")
            self.model = self.served

    async def sleep(self, level: int) -> None:
        """Free the GPU: the cache, and the weights, which level 1 keeps in the host's memory. One that is gone holds
        nothing.

        Raises:
            EngineError: it does not go to sleep.
        """
        try:
            await self._development(f"/sleep?level={level}", {})
            asleep = (await self.ask("GET", "/is_sleeping")).json()["is_sleeping"]
        except ServerGone as error:
            if error.status:
                raise EngineError(
                    f"{self.url} did not go to sleep: {error}; start it with --enable-sleep-mode"
                ) from error
            return
        if not asleep:
            raise EngineError(f"{self.url} does not support sleep: set engine.sleep=0, or use a GPU build of vLLM")
        self.asleep, self.adapter = level, self.adapter if level == 1 else ""

    async def _wake(self, base: str) -> bool:
        """End its sleep. The result is whether it has read the weights in `base`, which it lost by level 2."""
        level = self.asleep
        if level == 1:
            await self._development("/wake_up", {})
        elif level == 2:  # keys and values take their memory back after the weights have been read
            await self._development("/wake_up?tags=weights", {})
            await self._read_weights(base)
            await self._development("/wake_up?tags=kv_cache", {})
        self.asleep = 0
        return level == 2

    async def _read_weights(self, path: str) -> None:
        await self._development("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": path}})

    async def complete(self, prompt: Sequence[int], sampling: Sampling, limit: int) -> Completion:
        room = min(sampling.max_tokens, limit - len(prompt))
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": room,
            "temperature": sampling.temperature,
            "seed": sampling.seed,
            "stop_token_ids": list(sampling.stop_token_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            **WHOLE_DISTRIBUTION,
        }
        if sampling.json_schema is not None:
            body["structured_outputs"] = {"json": with_blanks(sampling.json_schema)}
        answer = (await self.ask("POST", "/v1/completions", json=body)).json()
        return completion(answer, sampling, room, self.url)

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        body = {"model": self.model, "prompt": list(token_ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        choice = (await self.ask("POST", "/v1/completions", json=body)).json()["choices"][0]
        logprobs = choice.get("prompt_logprobs")
        if not logprobs or len(logprobs) != len(token_ids):
            raise EngineError(f"{self.url} gave no prompt_logprobs for {len(token_ids)} tokens: expected a vLLM server")
        return [float(place[str(token)]["logprob"]) for place, token in zip(logprobs[1:], token_ids[1:], strict=True)]

    async def _pull(self, snapshot: PolicySnapshot) -> str:
        """Have the policy brought to the server's own host out of the store; the result is its folder there."""
        body = {"place": snapshot.place, "digest": snapshot.digest}
        return str((await self.ask("POST", f"{self.puller}/pull", json=body)).json()["path"])

    async def _load_adapter(self, snapshot: PolicySnapshot, path: str) -> None:
        name = adapter_name(snapshot)
        if name != self.adapter:
            body = {"lora_name": name, "lora_path": path, "load_inplace": True}
            await self._development("/v1/load_lora_adapter", body)
            # the old adapter goes last: a request in flight may still name it
            if self.adapter:
                await self._development("/v1/unload_lora_adapter", {"lora_name": self.adapter})
        self.model = self.adapter = name

    async def _development(self, route: str, body: dict[str, Any]) -> httpx.Response:
        """Ask one of the routes that vLLM only has when it is started with its development options."""
        try:
            return await self.ask("POST", route, json=body)
        except ServerGone as error:
            if error.status == 404 and "does not exist" not in str(error):
                raise EngineError(
                    f"{self.url} has no route {route}: start it with VLLM_SERVER_DEV_MODE=1 and "
                    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, as infra/engine/serve.sh does"
                ) from error
            raise


def largest_rank(rank: int) -> int:
    """Choose the smallest adapter rank that vLLM knows and that has room for `rank`."""
    return next((size for size in RANKS if size >= rank), RANKS[-1])


def adapter_name(snapshot: PolicySnapshot) -> str:
    return f"r3l-{snapshot.digest}"


def completion(answer: dict[str, Any], sampling: Sampling, room: int, url: str) -> Completion:
    """Check the server's answer: as many log-probabilities as ids, and a stop only by a token asked for."""
    choice = answer["choices"][0]
    ids = choice.get("token_ids")
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    if ids is None or logprobs is None or len(ids) != len(logprobs):
        raise EngineError(
            f"{url} gave {len(ids or [])} token ids and {len(logprobs or [])} log-probabilities: expected as many "
            "of both; return_token_ids needs vLLM 0.10 or newer"
        )
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    cached_tokens = int(details.get("cached_tokens") or 0)
    if choice["finish_reason"] == "stop":
        if not ids or ids[-1] not in sampling.stop_token_ids:
            raise EngineError(
                f"{url} stopped after token {ids[-1] if ids else None}, expected one of {sampling.stop_token_ids}"
            )
        return Completion(list(ids), list(logprobs), "stop", cached_tokens)
    if choice["finish_reason"] != "length":
        raise ServerGone(f"{url} ended a reply with {choice['finish_reason']!r}")
    return Completion(list(ids), list(logprobs), "length" if room >= sampling.max_tokens else "context", cached_tokens)
