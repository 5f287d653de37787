"""vLLM in this process: for a machine whose environment has vllm beside the trainer, and whose GPU has room for
both."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from r3l.config.engines import VllmLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import Completion, FinishReason, PolicySnapshot, Sampling, spaced
from r3l.engines.vllm.calls import retrieve_error
from r3l.engines.vllm.routes import largest_rank
from r3l.errors import EngineError, Interrupted


class VllmLocal:
    """An `Engine` around vLLM's `AsyncLLM`, on an event loop of its own thread.

    Raises:
        EngineError: vllm is not installed here.
    """

    def __init__(self, settings: VllmLocalSettings, policy: PolicySettings) -> None:
        try:
            import vllm
        except ImportError as error:
            raise EngineError(
                "engine.kind=vllm_local needs vllm in this environment, which pins other versions than Prefect does: "
                "make its own with infra/engine/install.sh and use engine.kind=vllm_server"
            ) from error
        self.vllm = vllm
        self.settings = settings
        self.policy = policy
        self.engine: Any = None
        self.base = ""  # the folder of the whole weights that it runs
        self.adapter: Any = None
        self.totals = dict.fromkeys(
            ("requests", "prompt_tokens", "cached_tokens", "sampled_tokens", "busy_seconds", "retried_calls"), 0.0
        )
        self._numbers = itertools.count(1)
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="r3l-vllm-local", daemon=True)
        self._thread.start()

    def load_policy(self, snapshot: PolicySnapshot) -> None:
        self._submit(self._load(snapshot)).result()

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        return self._submit(self._complete(request_id, list(prompt_ids), sampling))

    def score(self, token_ids: Sequence[int]) -> list[float]:
        scored: list[float] = self._submit(self._score(list(token_ids))).result()
        return scored

    @property
    def context_limit(self) -> int:
        return self.policy.context_tokens

    def counts(self) -> dict[str, float]:
        return dict(self.totals)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.run_coroutine_threadsafe(_end_others(), self._loop).result()
            if self.engine is not None:
                self.engine.shutdown()
                self.engine = None  # vLLM would end it again while Python ends, and fail
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _submit(self, call: Coroutine[Any, Any, Any]) -> Future[Any]:
        if not self._closed:
            return asyncio.run_coroutine_threadsafe(_translated(call), self._loop)
        call.close()
        failed: Future[Any] = Future()
        failed.set_exception(Interrupted("the engine is closed: make a new one"))
        return failed

    async def _load(self, snapshot: PolicySnapshot) -> None:
        path = snapshot.model_path
        if self.engine is None:
            self.engine = self._start(path, lora=self.policy.adapter == "lora" or snapshot.base_path is not None)
        elif snapshot.base_path is None or path != self.base:
            await self.engine.collective_rpc("reload_weights", kwargs={"weights_path": path})
            await self.engine.reset_prefix_cache()
        self.base, self.adapter = path, None
        if snapshot.base_path:
            from vllm.lora.request import LoRARequest

            self.adapter = LoRARequest(f"r3l-{snapshot.digest}", next(self._numbers), snapshot.path)

    def _start(self, path: str, lora: bool) -> Any:
        from vllm.config import StructuredOutputsConfig
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        # After a piece of a prompt vLLM rewinds a seeded request's generator, which no CPU generator can do: there
        # prompts go in whole.
        whole = (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": self.policy.context_tokens}
            if current_platform.is_cpu()
            else {}
        )
        arguments = self.vllm.AsyncEngineArgs(
            model=path,
            dtype=self.policy.dtype,
            max_model_len=self.policy.context_tokens,
            enable_prefix_caching=True,
            gpu_memory_utilization=self.settings.memory_share,
            enable_lora=lora,
            max_lora_rank=largest_rank(self.policy.lora_rank),
            structured_outputs_config=StructuredOutputsConfig(backend="guidance"),
            trust_remote_code=False,
            **whole,
        )
        return AsyncLLM.from_engine_args(arguments)

    async def _complete(self, request_id: str, prompt: list[int], sampling: Sampling) -> Completion:
        limit = self.context_limit
        if len(prompt) >= limit:
            return Completion([], [], "context")
        room = min(sampling.max_tokens, limit - len(prompt))
        options: dict[str, Any] = {}
        if sampling.json_schema is not None:
            from vllm.sampling_params import StructuredOutputsParams

            options["structured_outputs"] = StructuredOutputsParams(json=spaced(sampling.json_schema))
        final = await self._run(
            request_id,
            prompt,
            self.vllm.SamplingParams(
                temperature=sampling.temperature,
                max_tokens=room,
                seed=sampling.seed,
                stop_token_ids=list(sampling.stop_token_ids),
                ignore_eos=True,
                logprobs=0,
                detokenize=False,
                **options,
            ),
        )
        output = final.outputs[0]
        ids = list(output.token_ids)
        logprobs = [place[token].logprob for place, token in zip(output.logprobs, ids, strict=True)]
        for name, amount in (
            ("requests", 1),
            ("prompt_tokens", len(prompt)),
            ("cached_tokens", final.num_cached_tokens or 0),
            ("sampled_tokens", len(ids)),
        ):
            self.totals[name] += amount
        cut: FinishReason = "length" if room >= sampling.max_tokens else "context"
        return Completion(
            ids, logprobs, "stop" if output.finish_reason == "stop" else cut, final.num_cached_tokens or 0
        )

    async def _score(self, token_ids: list[int]) -> list[float]:
        params = self.vllm.SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
        final = await self._run("score", token_ids, params)
        return [place[token].logprob for place, token in zip(final.prompt_logprobs[1:], token_ids[1:], strict=True)]

    async def _run(self, request_id: str, prompt: list[int], params: Any) -> Any:
        if self.engine is None:
            raise EngineError("no policy is loaded: call load_policy before complete")
        name = f"{request_id}#{next(self._numbers)}"
        final = None
        async for output in self.engine.generate({"prompt_token_ids": prompt}, params, name, lora_request=self.adapter):
            final = output
        return final


async def _translated(call: Coroutine[Any, Any, Any]) -> Any:
    if (task := asyncio.current_task()) is not None:
        task.add_done_callback(retrieve_error)
    try:
        return await call
    except EngineError:
        raise
    except asyncio.CancelledError:
        raise Interrupted("the engine was closed before this call was answered") from None
    except Exception as error:
        raise EngineError(f"vllm failed: {type(error).__name__}: {error}") from error


async def _end_others() -> None:
    """End every call in flight: nobody may wait for a loop that has stopped."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
