"""Prefill and decode of the engines beside plain `generate`, and an episode-like load with its reuse ratio.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python -m tests.benchmarks.engine_decode [--policy FOLDER] [--dtype
    bfloat16]
        [--batch 8] [--shared 450] [--vllm .venv-vllm]

Without --policy: random weights of the embedded policy's shape. All sides run one after the other on the same prompts,
the best of three each, per CPU-second (a busy machine changes wall time, hardly these); the rate on the clock stands in
brackets. Every run has seeds of its own: random weights then never repeat themselves, and the engine's guesses do not
show here. With --vllm a server of the policy is started from that environment, and its CPU seconds are those of all its
processes.
"""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from r3l.config.engines import TransformersLocalSettings, VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import Engine, PolicySnapshot, Sampling

REPEATS = 3


def main() -> None:
    options = arguments()
    path = options.policy or embedded_shape()
    model = load(path, options.dtype)
    engine = make_engine(
        TransformersLocalSettings(threads=options.threads), PolicySettings(dtype=options.dtype, context_tokens=8192)
    )
    started = time.perf_counter()
    engine.load_policy(PolicySnapshot(path, "benchmark"))
    print(f"load_policy {time.perf_counter() - started:.2f} s; {torch.get_num_threads()} threads for generate")
    chance = random.Random(0)
    shared = ids(chance, options.shared, model.config.vocab_size)
    prompts = [
        shared + ids(chance, options.prompt - options.shared, model.config.vocab_size) for _ in range(options.batch)
    ]
    print(
        f"batch {options.batch}, prompts of {options.prompt} tokens, {options.shared} of them shared, "
        f"{options.reply} tokens a reply"
    )
    print("tokens per CPU-second (per second)")
    plain = generate_rates(model, prompts, options.reply)
    report("generate", plain, plain)
    report("transformers_local", engine_rates(engine, prompts, options.reply, time.process_time), plain)
    if options.vllm:
        report("vllm_server", vllm_rates(options, path, prompts), plain)
    if options.episodes:
        episodes(engine, options, model.config.vocab_size)
    engine.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=500)
    parser.add_argument("--shared", type=int, default=0, help="tokens that all prompts begin with")
    parser.add_argument("--vllm", default="", help="environment of vLLM, made by infra/engine/install.sh")
    parser.add_argument("--reply", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=12)
    return parser.parse_args()


def embedded_shape() -> str:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="engine-benchmark-")
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=825,
            hidden_size=128,
            intermediate_size=320,
            num_hidden_layers=4,
            num_attention_heads=4,
            tie_word_embeddings=True,
            max_position_embeddings=8192,
            bos_token_id=None,
            eos_token_id=4,
            pad_token_id=0,
        )
    ).save_pretrained(folder)
    return folder


def load(path: str, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()


def ids(chance: random.Random, count: int, vocabulary: int) -> list[int]:
    return [chance.randrange(10, vocabulary) for _ in range(count)]


@dataclass(frozen=True)
class Rates:
    """Tokens per CPU-second and per second on the clock: (prefill, decode) each."""

    cpu: tuple[float, float]
    clock: tuple[float, float]


def report(name: str, rates: Rates, plain: Rates) -> None:
    parts = [
        f"{kind} {cpu:7.0f} ({clock:6.0f}) {cpu / before:5.2f}x"
        for kind, cpu, clock, before in zip(("prefill", "decode"), rates.cpu, rates.clock, plain.cpu, strict=True)
    ]
    print(f"  {name:20}" + "   ".join(parts))


def rates_of(
    run: Callable[[int], None],
    spent: Callable[[], float],
    prompt_tokens: int,
    batch: int,
    reply: int,
    prefix_kept: bool = False,
) -> Rates:
    """From replies of one token and of `reply` tokens. `prefix_kept`: only the first run computes the prompts."""

    def seconds(count: int, times: int) -> list[float]:
        found = []
        for _ in range(times):
            started = spent(), time.perf_counter()
            run(count)
            found.append((spent() - started[0], time.perf_counter() - started[1]))
        return [min(side) for side in zip(*found, strict=True)]

    first = seconds(1, 1 if prefix_kept else REPEATS)
    again = seconds(1, REPEATS) if prefix_kept else first
    whole = seconds(reply, REPEATS)
    both = [(prompt_tokens / a, batch * (reply - 1) / (c - b)) for a, b, c in zip(first, again, whole, strict=True)]
    return Rates(both[0], both[1])


@torch.no_grad()
def generate_rates(model: Any, prompts: list[list[int]], reply: int) -> Rates:
    """Plain `generate` of transformers; replies are not stopped early."""
    batch = torch.tensor(prompts)

    def run(count: int) -> None:
        model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            min_new_tokens=count,
            max_new_tokens=count,
            do_sample=True,
            pad_token_id=0,
        )

    return rates_of(run, time.process_time, batch.numel(), len(prompts), reply)


def engine_rates(engine: Engine, prompts: list[list[int]], reply: int, spent: Callable[[], float]) -> Rates:
    seeds = itertools.count()

    def run(count: int) -> None:
        futures = [
            engine.complete(f"prompt={k}", prompt, Sampling(1.0, count, next(seeds), ()))
            for k, prompt in enumerate(prompts)
        ]
        for future in futures:
            future.result()

    return rates_of(run, spent, sum(map(len, prompts)), len(prompts), reply, prefix_kept=True)


def vllm_rates(options: argparse.Namespace, path: str, prompts: list[list[int]]) -> Rates:
    from tests.benchmarks.served_vllm import serving

    warm = [prompt[::-1] for prompt in prompts]
    with serving(path, options.dtype, options.vllm, Path(tempfile.gettempdir()) / "served_vllm.log") as (url, spent):
        engine = make_engine(VllmServerSettings(urls=url), PolicySettings(dtype=options.dtype, context_tokens=2048))
        engine.load_policy(PolicySnapshot(path, "benchmark"))
        engine_rates(engine, warm, 4, spent)  # what is compiled at first use
        rates = engine_rates(engine, prompts, options.reply, spent)
        engine.close()
    return rates


def episodes(engine: Engine, options: argparse.Namespace, vocabulary: int) -> None:
    """A system prompt of 450 tokens, tasks of 4 attempts, observations of 40 tokens, replies of 25; then retries from
    turn 4."""
    chance = random.Random(1)
    system = ids(chance, 450, vocabulary)
    tasks = [ids(chance, 40, vocabulary) for _ in range(-(-options.episodes // 4))]
    openings = [system + tasks[number // 4] for number in range(options.episodes)]
    before = engine.counts()
    started, wall = time.process_time(), time.perf_counter()
    numbers = range(options.episodes)
    with ThreadPoolExecutor(options.episodes) as threads:
        kept = list(
            threads.map(lambda number: play(engine, openings[number], number, options.turns, vocabulary), numbers)
        )
        list(
            threads.map(
                lambda number: play(engine, kept[number][0], number + 10_000, options.turns - 4, vocabulary), numbers
            )
        )
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    spent = {name: value - before[name] for name, value in engine.counts().items()}
    later = sum(prompt for _, prompts in kept for prompt in prompts[1:])
    print(
        f"episodes: {2 * options.episodes} ({options.turns} turns and a retry from turn 4) in {seconds:.1f} CPU-s, "
        f"{wall:.1f} s: "
        f"{2 * options.episodes / seconds:.1f} episodes and {spent['sampled_tokens'] / seconds:.0f} sampled tokens "
        "per CPU-second"
    )
    print(
        f"  {spent['steps']:.0f} steps, {1000 * seconds / spent['steps']:.2f} CPU-ms a step, "
        f"{spent['cached_tokens'] / spent['prompt_tokens']:.1%} of all prompt tokens not computed again, {later} in "
        "later turns"
    )


def play(engine: Engine, opening: list[int], seed: int, turns: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """One episode; returns its ids before turn 4 and the prompt lengths of its turns."""
    chance = random.Random(seed)
    context, at_pivot, prompts = list(opening), list(opening), []
    for turn in range(turns):
        reply = engine.complete(
            f"episode={seed}/turn={turn}", context, Sampling(1.0, 25, seed * 100 + turn, ())
        ).result()
        prompts.append(len(context))
        context = context + reply.token_ids + ids(chance, 40, vocabulary)
        if turn == 3:
            at_pivot = list(context)
    return at_pivot, prompts


if __name__ == "__main__":
    main()
