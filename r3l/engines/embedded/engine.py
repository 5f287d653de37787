"""The embedded engine: one thread, one model (loading.py), continuous batching over all callers' requests.

A request's life: `complete` puts it in the inbox → the thread finds what is stored of its prompt (segments.py) → every
step feeds the new tokens of all requests in one forward pass (attention.py, batching.py) → the reply is delivered by
its future, and what was computed stays for the next turn or a retry.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from r3l.config.engines import TINY, TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import Completion, PolicySnapshot, Sampling
from r3l.engines.embedded.batching import Batch
from r3l.engines.embedded.constraint import Grammars
from r3l.engines.embedded.loading import load_model
from r3l.engines.embedded.request import Request
from r3l.engines.embedded.segments import SegmentTree
from r3l.errors import EngineError, Interrupted

CLOSE_S = 2.0  # for the step that is under way
THREADS = torch.get_num_threads()  # OMP_NUM_THREADS where it is set, else the cores


@dataclass
class Command:
    """A call that the thread runs when no request is in flight."""

    action: Callable[[], None]
    future: Future[None]


class TransformersLocal:
    """An `Engine` in this process. `load_policy` waits for the requests in flight, and drops all that is stored."""

    def __init__(self, settings: TransformersLocalSettings, policy: PolicySettings) -> None:
        self.settings = settings
        self.policy = policy
        self.batch: Batch | None = None
        self.totals = dict.fromkeys(
            ("requests", "prompt_tokens", "cached_tokens", "sampled_tokens", "busy_seconds", "retried_calls", "steps"),
            0.0,
        )
        self._policy_path = ""  # where the tokenizer is
        self._grammars: Grammars | None = None
        self._inbox: deque[Request | Command] = deque()
        self._arrival = threading.Condition()
        self._waiting: deque[Request | Command] = deque()  # arrived, and not begun; of the engine's thread
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="r3l-engine", daemon=True)
        self._thread.start()

    def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Load the policy. Raise `EngineError` if `snapshot` can't be loaded; the policy before it is then gone,
        too."""
        self._put(Command(lambda: self._load(snapshot), Future())).result()

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        future: Future[Completion] = Future()
        self._put(Request(request_id, list(prompt_ids), sampling, future))
        return future

    def score(self, token_ids: Sequence[int]) -> list[float]:
        logprobs: list[float] = self._put(Request("score", list(token_ids), None, Future())).future.result()
        return logprobs

    @property
    def context_limit(self) -> int:
        return self.batch.context_limit if self.batch else self.policy.context_tokens

    def counts(self) -> dict[str, float]:
        """Report the contract's totals, and `steps`: forward passes."""
        return dict(self.totals)

    def close(self) -> None:
        """End the thread; requests in flight and later ones get `Interrupted`."""
        with self._arrival:
            self._closed = True
            self._arrival.notify()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():  # a step of a large model on a busy machine: nobody waits for its end
            self._end_requests()
        else:
            self._forget()

    def _end_requests(self) -> None:
        for item in (*self._inbox, *self._waiting, *(self.batch.active if self.batch else ())):
            if not item.future.done():
                item.future.set_exception(Interrupted("the engine was closed before this request was answered"))

    def _forget(self) -> None:
        """Free the policy and all keys and values."""
        if self.batch:
            self.batch.tree.clear()
        self.batch = self._grammars = None

    def _put(self, item: Any) -> Any:
        with self._arrival:
            if self._closed:
                item.future.set_exception(Interrupted("the engine is closed: make a new one"))
            else:
                self._inbox.append(item)
                self._arrival.notify()
        return item if isinstance(item, Request) else item.future

    def _serve(self) -> None:
        waiting = self._waiting
        torch.set_flush_denormal(True)  # most weights of attention are: as zeros they take no time (data/LOG.md)
        with torch.inference_mode():
            while self._receive(waiting):
                start_time = time.perf_counter()
                try:
                    self._turn(waiting)
                except EngineError as error:
                    self._fail(error)
                except Exception as error:  # noqa: BLE001  (the boundary: whatever torch raises reaches the callers as EngineError)
                    self._fail(EngineError(f"the engine's step failed: {type(error).__name__}: {error}"))
                self.totals["busy_seconds"] += time.perf_counter() - start_time
        self._end_requests()

    def _receive(self, waiting: deque[Request | Command]) -> bool:
        """Move what has arrived to `waiting`; with nothing to do, sleep until something arrives. False: closed."""
        with self._arrival:
            while not (self._closed or self._inbox or waiting or (self.batch and self.batch.active)):
                self._arrival.wait()
            waiting.extend(self._inbox)
            self._inbox.clear()
            return not self._closed

    def _turn(self, waiting: deque[Request | Command]) -> None:
        # in order of arrival: a command waits for all requests before it, and holds up those behind it
        while waiting and self._admissible(waiting[0]):
            item = waiting.popleft()
            if not item.future.set_running_or_notify_cancel():
                continue  # its caller has given it up; from here on it can't
            try:
                self._run(item) if isinstance(item, Command) else self._admit(item)
            except EngineError as error:
                item.future.set_exception(error)
            except Exception as error:
                item.future.set_exception(
                    EngineError(f"the engine failed before it began: {type(error).__name__}: {error}")
                )
                raise  # what it left behind is cleared with the requests in flight
        if self.batch and self.batch.active:
            before = self.batch.sampled_tokens
            self.batch.step()
            self.totals["steps"] += 1
            self.totals["sampled_tokens"] += self.batch.sampled_tokens - before

    def _run(self, command: Command) -> None:
        command.action()
        command.future.set_result(None)

    def _admissible(self, item: Request | Command) -> bool:
        active = len(self.batch.active) if self.batch else 0
        return active == 0 if isinstance(item, Command) else active < self.settings.max_batch

    def _admit(self, request: Request) -> None:
        if self.batch is None:
            request.future.set_exception(EngineError("no policy is loaded: call load_policy before complete"))
        elif not request.prompt:
            request.future.set_exception(
                EngineError(f"{request.request_id}: got an empty prompt, expected at least one token id")
            )
        elif not 0 <= min(request.prompt) <= max(request.prompt) < self.batch.vocabulary:
            request.future.set_exception(
                EngineError(
                    f"{request.request_id}: got token ids from {min(request.prompt)} to {max(request.prompt)}, and the "
                    f"policy has {self.batch.vocabulary} embeddings: its folder has the tokenizer of another model"
                )
            )
        elif request.sampling and len(request.prompt) >= self.batch.context_limit:
            request.future.set_result(Completion([], [], "context"))
        else:
            self._hold_to_schema(request)
            self.batch.admit(request)
            self.totals["requests"] += 1
            self.totals["prompt_tokens"] += len(request.prompt)
            self.totals["cached_tokens"] += request.cached

    def _hold_to_schema(self, request: Request) -> None:
        if request.sampling and request.sampling.json_schema is not None:
            if self._grammars is None:
                assert self.batch is not None
                self._grammars = Grammars(self._policy_path, self.batch.model.config.vocab_size)
            request.constraint = self._grammars.constraint(
                request.sampling.json_schema, request.sampling.stop_token_ids
            )

    def _fail(self, error: EngineError) -> None:
        """Start from an empty tree, because stored keys and values may be incomplete."""
        if self.batch:
            self.batch.fail(error)
            self.batch.tree.clear()
            self.batch = Batch(self.batch.model, SegmentTree(self.settings.cache_tokens), self.batch.context_limit)

    def _load(self, snapshot: PolicySnapshot) -> None:
        self._forget()
        device = self.settings.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        model = load_model(
            snapshot, getattr(torch, self.policy.dtype), torch.device(device), self.settings.batch_invariant
        )
        tiny = sum(parameter.numel() for parameter in model.parameters()) < TINY
        torch.set_num_threads(self.settings.threads or (1 if tiny else THREADS))
        limit = min(self.policy.context_tokens, model.config.max_position_embeddings)
        self.batch = Batch(model, SegmentTree(self.settings.cache_tokens), limit)
        self._policy_path = snapshot.model_path
