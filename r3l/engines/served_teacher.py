"""A teacher that a server has: asked in words, by OpenAI's chat route."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx

from r3l.engines.base import FinishReason, Sampling
from r3l.engines.chat_format import Message
from r3l.engines.teacher import Taught, served_digest
from r3l.errors import EngineError, Interrupted, ServerAway

CALLS = 32  # calls in flight
TRIES = 3
FINISHED: dict[str | None, FinishReason] = {"length": "length"}


class ServedTeacher:
    """A model of a server with OpenAI's chat route. `address`: such as http://127.0.0.1:8000, with or without /v1."""

    def __init__(self, address: str, model: str, key: str = "", timeout_s: float = 600) -> None:
        self.address, self.model, self.digest = address.rstrip("/").removesuffix("/v1"), model, served_digest(model)
        self.client = httpx.Client(
            timeout=httpx.Timeout(timeout_s, connect=10),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            trust_env=False,
        )
        self._calls = ThreadPoolExecutor(CALLS, "r3l-teacher")
        self._closed = False

    def write(self, request_id: str, messages: Sequence[Message], sampling: Sampling) -> Future[Taught]:
        body = {
            "model": self.model,
            "messages": list(messages),
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": sampling.seed % 2**31,
        }
        if self._closed:
            raise Interrupted("the teacher is closed")
        return self._calls.submit(self._asked, request_id, body)

    def _asked(self, request_id: str, body: dict[str, Any]) -> Taught:
        failure = ""
        for attempt in range(TRIES):
            try:
                answer = self.client.post(f"{self.address}/v1/chat/completions", json=body)
                if answer.status_code == 200:
                    content = answer.json()
                    choice = content["choices"][0]
                    finish = FINISHED.get(choice.get("finish_reason"), "stop")
                    usage = content.get("usage")
                    counts = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
                    return Taught(str(choice["message"]["content"] or ""), finish, counts)
                failure = f"status {answer.status_code}: {answer.text[:200]}"
                if answer.status_code < 500 and answer.status_code != 429:
                    break
            except httpx.TransportError as error:
                failure = f"{type(error).__name__}: {error}"
                if attempt + 1 == TRIES and isinstance(error, httpx.ConnectError) and not self._closed:
                    raise ServerAway(f"teacher {self.address} does not answer: {failure}") from error
            except (KeyError, IndexError, TypeError, ValueError) as error:
                failure = f"no chat completion in its answer: {error!r}"
            if self._closed:
                raise Interrupted("the teacher was closed before this call was answered")
            time.sleep(0.2 * 2**attempt)
        raise EngineError(f"{request_id}: teacher {self.model} at {self.address}: {failure}")

    def close(self) -> None:
        self._closed = True
        self._calls.shutdown(wait=False, cancel_futures=True)
        self.client.close()


def token_count(usage: Any, name: str) -> int | None:
    """Read a number of tokens that the server says it used; None where it says none."""
    number = usage.get(name) if isinstance(usage, dict) else None
    return number if type(number) is int and 0 <= number < 2**31 else None
