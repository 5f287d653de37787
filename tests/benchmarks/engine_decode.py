"""Prefill and decode of transformers_local beside plain `generate`, and an episode-like load with its reuse ratio.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python -m tests.benchmarks.engine_decode [--policy FOLDER] [--dtype bfloat16]

Without --policy: random weights of the embedded policy's shape. All figures of one run are from one process, one after
the other, on the same prompts, per CPU-second of the process (a busy machine changes wall time, hardly these). Replies of
random weights never repeat themselves, so the engine's guesses do not show here.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import Engine, PolicySnapshot, Sampling


def main() -> None:
    options = arguments()
    path = options.policy or embedded_shape()
    model = load(path, options.dtype)
    engine = make_engine(TransformersLocalSettings(threads=options.threads), PolicySettings(dtype=options.dtype, context_tokens=8192))
    started = time.perf_counter()
    engine.load_policy(PolicySnapshot(path, "benchmark"))
    print(f"load_policy {time.perf_counter() - started:.2f} s; {torch.get_num_threads()} threads for generate")
    chance = random.Random(0)
    prompts = [ids(chance, options.prompt, model.config.vocab_size) for _ in range(options.batch)]
    print(f"batch {options.batch}, prompts of {options.prompt} unshared tokens, {options.reply} tokens a reply; tokens per CPU-second")
    plain = generate_rates(model, prompts, options.reply)
    ours = engine_rates(engine, prompts, options.reply)
    for name, before, after in zip(("prefill", "decode"), plain, ours, strict=True):
        print(f"  {name:8} generate {before:8.0f}   transformers_local {after:8.0f}   {after / before:.2f}x")
    episodes(engine, options, model.config.vocab_size)
    engine.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=500)
    parser.add_argument("--reply", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=12)
    return parser.parse_args()


def embedded_shape() -> str:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="engine-benchmark-")
    LlamaForCausalLM(LlamaConfig(
        vocab_size=825, hidden_size=128, intermediate_size=320, num_hidden_layers=4, num_attention_heads=4, tie_word_embeddings=True,
        max_position_embeddings=8192, bos_token_id=None, eos_token_id=4, pad_token_id=0)).save_pretrained(folder)
    return folder


def load(path: str, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()


def ids(chance: random.Random, count: int, vocabulary: int) -> list[int]:
    return [chance.randrange(10, vocabulary) for _ in range(count)]


@torch.no_grad()
def generate_rates(model: Any, prompts: list[list[int]], reply: int) -> tuple[float, float]:
    """Prefill and decode rates of transformers' generate; replies are not stopped early."""
    batch = torch.tensor(prompts)

    def seconds(count: int) -> float:
        started = time.process_time()
        model.generate(batch, attention_mask=torch.ones_like(batch), min_new_tokens=count, max_new_tokens=count, do_sample=True,
                       pad_token_id=0)
        return time.process_time() - started

    first, whole = seconds(1), seconds(reply)
    return batch.numel() / first, len(prompts) * (reply - 1) / (whole - first)


def engine_rates(engine: Engine, prompts: list[list[int]], reply: int) -> tuple[float, float]:
    def seconds(batch: list[list[int]], count: int) -> float:
        started = time.process_time()
        futures = [engine.complete(f"prompt={k}", prompt, Sampling(1.0, count, k, ())) for k, prompt in enumerate(batch)]
        for future in futures:
            future.result()
        return time.process_time() - started

    first = seconds(prompts, 1)
    again, whole = seconds(prompts, 1), seconds(prompts, reply)  # what is stored now is not computed again
    return sum(map(len, prompts)) / first, len(prompts) * (reply - 1) / (whole - again)


def episodes(engine: Engine, options: argparse.Namespace, vocabulary: int) -> None:
    """A system prompt of 450 tokens, tasks of 4 attempts, observations of 40 tokens, replies of 25; then retries from turn 4."""
    chance = random.Random(1)
    system = ids(chance, 450, vocabulary)
    tasks = [ids(chance, 40, vocabulary) for _ in range(-(-options.episodes // 4))]
    openings = [system + tasks[number // 4] for number in range(options.episodes)]
    before = engine.counts()
    started, wall = time.process_time(), time.perf_counter()
    numbers = range(options.episodes)
    with ThreadPoolExecutor(options.episodes) as threads:
        kept = list(threads.map(lambda number: play(engine, openings[number], number, options.turns, vocabulary), numbers))
        list(threads.map(lambda number: play(engine, kept[number][0], number + 10_000, options.turns - 4, vocabulary), numbers))
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    spent = {name: value - before[name] for name, value in engine.counts().items()}
    later = sum(prompt for _, prompts in kept for prompt in prompts[1:])
    print(f"episodes: {2 * options.episodes} ({options.turns} turns and a retry from turn 4) in {seconds:.1f} CPU-s, {wall:.1f} s: "
          f"{2 * options.episodes / seconds:.1f} episodes and {spent['sampled_tokens'] / seconds:.0f} sampled tokens per CPU-second")
    print(f"  {spent['steps']:.0f} steps, {1000 * seconds / spent['steps']:.2f} CPU-ms a step, "
          f"{spent['cached_tokens'] / spent['prompt_tokens']:.1%} of all prompt tokens not computed again, {later} in later turns")


def play(engine: Engine, opening: list[int], seed: int, turns: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """One episode; returns its ids before turn 4 and the prompt lengths of its turns."""
    chance = random.Random(seed)
    context, at_pivot, prompts = list(opening), list(opening), []
    for turn in range(turns):
        reply = engine.complete(f"episode={seed}/turn={turn}", context, Sampling(1.0, 25, seed * 100 + turn, ())).result()
        prompts.append(len(context))
        context = context + reply.token_ids + ids(chance, 40, vocabulary)
        if turn == 3:
            at_pivot = list(context)
    return at_pivot, prompts


if __name__ == "__main__":
    main()
