"""Episodes played on the embedded engine under seeded disturbance: arrival, batch, cache, threads, steps, drafts."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from r3l.config import compose
from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.embedded import batching
from r3l.engines.embedded.drafting import Drafts
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.store.stage import Store


class Way:
    """One way to play the same episodes: batch limit, cache, callers, threads, tokens of a step, drafts, delays."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.chance = chance
        self.max_batch = chance.choice([1, 2, 5, 16, 64])
        self.cache_tokens = chance.choice([0, 300, 2_000, 400_000])
        self.callers = chance.choice([1, 2, 3, 8, 32])
        self.threads = chance.choice([1, 2])
        self.step_tokens = chance.choice([7, 50, 200, 1024])
        self.drafts = chance.random() < 0.7
        self.batch_invariant = True
        self.longest_delay = chance.choice([0.0, 0.002, 0.01])

    @classmethod
    def on_one_thread(cls, seed: int) -> Way:
        """Several threads of a loaded machine wait for each other: for tests that must be fast."""
        way = cls(seed)
        way.threads = 1
        return way

    @contextmanager
    def engine(self, snapshot: PolicySnapshot, dtype: str) -> Iterator[Any]:
        settings = TransformersLocalSettings(
            threads=self.threads,
            max_batch=self.max_batch,
            cache_tokens=self.cache_tokens,
            device="cpu",
            batch_invariant=self.batch_invariant,
        )
        with patch.object(batching, "STEP_TOKENS", self.step_tokens), self._guessing():
            engine = make_engine(settings, PolicySettings(dtype=dtype, context_tokens=2048))
            engine.load_policy(snapshot)
            yield engine
            engine.close()

    @contextmanager
    def _guessing(self) -> Iterator[None]:
        if self.drafts:
            yield
        else:
            with patch.object(Drafts, "guess", lambda *_: []):
                yield


def play(
    snapshot: PolicySnapshot, dtype: str, way: Way, episodes: int, turns: int, vocabulary: int, opening: int = 150
) -> list[Any]:
    """Play episodes and retries from their middle, and score the longest context of each. Return all they gave."""
    with way.engine(snapshot, dtype) as engine, ThreadPoolExecutor(way.callers) as threads:
        order = list(range(episodes))
        way.chance.shuffle(order)
        calls = {
            seed: threads.submit(_episode, engine, seed, turns, vocabulary, opening, way.longest_delay)
            for seed in order
        }
        return [calls[seed].result(timeout=600) for seed in range(episodes)]


def _episode(engine: Any, seed: int, turns: int, vocabulary: int, opening: int, longest_delay: float) -> Any:
    chance, pause = random.Random(seed), random.Random()
    common, task = random.Random(-1), random.Random(seed // 4)
    context = [common.randrange(vocabulary) for _ in range(opening)] + [
        task.randrange(vocabulary) for _ in range(opening // 3)
    ]
    contexts, made = [], []
    for turn in range(2 * turns):
        if turn == turns:  # a retry leaves the episode in its middle
            context = contexts[turns // 2] + [5, 6, 7]
        time.sleep(pause.random() * longest_delay)
        contexts.append(context)
        sampling = Sampling(1.0 if seed % 3 else 0.0, 12, 1000 * seed + turn, (vocabulary - 1,))
        reply = engine.complete(f"{seed}/{turn}", context, sampling).result(timeout=600)
        made.append((reply.token_ids, reply.logprobs))
        context = context + reply.token_ids + [chance.randrange(vocabulary) for _ in range(chance.randrange(1, 30))]
    return made, engine.score(context)


def cost_of_sampling(path: str, dtype: str, quick: bool, batch_invariant: bool) -> float:
    """Return processor seconds of 8 episodes of 3 turns and as many of a retry, on one thread, behind 530 tokens."""
    way = Way.on_one_thread(0)
    way.max_batch, way.cache_tokens, way.callers, way.step_tokens = 64, 400_000, 16, 1024
    way.drafts, way.longest_delay, way.batch_invariant = True, 0.0, batch_invariant
    began = time.process_time()
    play(PolicySnapshot(path, "random"), dtype, way, 4 if quick else 8, 1 if quick else 3, 500, opening=400)
    return time.process_time() - began


def cost_of_an_iteration(dtype: str, quick: bool, batch_invariant: bool) -> float:
    """Return processor seconds of a whole iteration of 2 or 4 tasks, N = 4, and of its processes, on one thread."""
    asked = {"rollout.tasks": 2 if quick else 4, "rollout.group_size": 4, "training.processes": 0, "engine.threads": 1}
    asked |= {"policy.dtype": dtype, "engine.batch_invariant": str(batch_invariant).lower()}
    with tempfile.TemporaryDirectory() as folder:
        store, settings = Store.open(folder), [f"{name}={value}" for name, value in asked.items()]
        config = compose(policy="household", environment="household", assignments=settings, run="cost")
        began = sum(os.times()[:4])
        with open_iteration(config, store, 0) as bench:
            run_stages(bench)
        return sum(os.times()[:4]) - began
