"""Prefill and decode of the engines beside plain `generate`, and an episode-like load with its reuse ratio.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python -m tests.benchmarks.engine_decode [--policy FOLDER] [--dtype
    bfloat16]
        [--batch 8] [--shared 450] [--vllm .venv-vllm]

Without --policy: random weights, of the embedded policy's shape or SmolLM2's. All sides run in turns on the same
prompts, the best of three each, per CPU-second (a busy machine changes wall time, hardly these); the rate on the clock
stands in brackets. Every run has seeds of its own: random weights then never repeat themselves, and the engine's
guesses do not show here. With --vllm a server of the policy is started from that environment, and its CPU seconds are
those of all its processes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from r3l.config.engines import TransformersLocalSettings, VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import Engine, PolicySnapshot, Sampling


def main() -> None:
    options = arguments()
    path = options.policy or random_policy(options.shape)
    with engine_of(options, path) as engine:
        print(
            f"batch {options.batch}, prompts of {options.prompt} tokens, {options.shared} of them shared, "
            f"{options.reply} tokens a reply; {torch.get_num_threads()} threads for generate"
        )
        print("tokens per CPU-second (per second)")
        found = compared(options, path, engine)
        for name, rates in found.items():
            report(name, rates, found["generate"])
        if options.episodes:
            episodes(engine, options, vocabulary_of(path))


@contextmanager
def engine_of(options: argparse.Namespace, path: str) -> Iterator[Engine]:
    settings = TransformersLocalSettings(threads=options.threads)
    engine = make_engine(settings, PolicySettings(dtype=options.dtype, context_tokens=8192))
    engine.load_policy(PolicySnapshot(path, "benchmark"))
    yield engine
    engine.close()


def compared(options: argparse.Namespace, path: str, engine: Engine) -> dict[str, Rates]:
    """Each side's rates, the sides in turns."""
    chance, vocabulary = random.Random(0), vocabulary_of(path)
    shared = ids(chance, options.shared, vocabulary)
    prompts = [shared + ids(chance, options.prompt - options.shared, vocabulary) for _ in range(options.batch)]
    sides = {
        "generate": generate_side(load(path, options.dtype), prompts),
        "transformers_local": engine_side(engine, prompts, time.process_time),
    }
    with ExitStack() as held:
        if options.vllm:
            sides["vllm_server"] = held.enter_context(vllm_side(options, path, prompts))
        return rates_of(sides, sum(map(len, prompts)), options.batch, options.reply, options.repeats)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="", help="a folder; else random weights of --shape")
    parser.add_argument("--shape", default="embedded", choices=list(SHAPES))
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=500)
    parser.add_argument("--shared", type=int, default=0, help="tokens that all prompts begin with")
    parser.add_argument("--vllm", default="", help="environment of vLLM, made by infra/engine/install.sh")
    parser.add_argument("--reply", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args(given)


SHAPES: dict[str, dict[str, Any]] = {
    "embedded": {
        "vocab_size": 825,
        "hidden_size": 128,
        "intermediate_size": 320,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    },
    "smollm2": {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3,
    },
}  # fmt: skip


def random_policy(shape: str) -> str:
    """A folder with random weights of that shape, and the tokenizer that a server asks for."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.unit.chat_tokenizers import family_tokenizer

    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="engine-benchmark-")
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": 4, "pad_token_id": 0}
    config = LlamaConfig(**SHAPES[shape], **ends, tie_word_embeddings=True, max_position_embeddings=8192)
    LlamaForCausalLM(config).save_pretrained(folder)
    family_tokenizer("smollm2").save_pretrained(folder)
    return folder


def vocabulary_of(path: str) -> int:
    return int(json.loads((Path(path) / "config.json").read_text())["vocab_size"])


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


@dataclass(frozen=True)
class Side:
    run: Callable[[int, int], None]  # replies of so many tokens to all prompts, each begun at this token of it
    spent: Callable[[], float]  # seconds of the processor so far

    def seconds(self, count: int, start: int = 0) -> tuple[float, float]:
        """Of the processor and on the clock."""
        started = self.spent(), time.perf_counter()
        self.run(count, start)
        return self.spent() - started[0], time.perf_counter() - started[1]


def rates_of(sides: dict[str, Side], prompt_tokens: int, batch: int, reply: int, repeats: int) -> dict[str, Rates]:
    """From replies of one token and of `reply` tokens, the best of the repeats, the sides in turns. Prompts that start
    at another token are new to a side that keeps what it has read."""
    prefill = {name: [side.seconds(1)] for name, side in sides.items()}
    for start, (name, side) in itertools.product(range(1, repeats + 1), sides.items()):
        prefill[name].append(side.seconds(1, start))
    first: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    whole: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            first[name].append(side.seconds(1))
            whole[name].append(side.seconds(reply))

    def best(found: list[tuple[float, float]]) -> tuple[float, float]:
        return min(cpu for cpu, _ in found), min(clock for _, clock in found)

    rates = {}
    for name in sides:
        found = zip(*(best(of[name]) for of in (prefill, first, whole)), strict=True)  # processor's, then the clock's
        rates[name] = Rates(
            *((prompt_tokens / read, batch * (reply - 1) / (long - short)) for read, short, long in found)
        )
    return rates


def generate_side(model: Any, prompts: list[list[int]]) -> Side:
    """Plain `generate` of transformers; replies are not stopped early."""

    @torch.no_grad()
    def run(count: int, start: int) -> None:
        batch = torch.tensor(started_at(start, prompts))
        model.generate(
            batch, attention_mask=torch.ones_like(batch), min_new_tokens=count, max_new_tokens=count, do_sample=True,
            pad_token_id=0,
        )  # fmt: skip

    return Side(run, time.process_time)


def engine_side(engine: Engine, prompts: list[list[int]], spent: Callable[[], float]) -> Side:
    seeds = itertools.count()

    def run(count: int, start: int) -> None:
        futures = [
            engine.complete(f"prompt={k}", prompt, Sampling(1.0, count, next(seeds), ()))
            for k, prompt in enumerate(started_at(start, prompts))
        ]
        for future in futures:
            future.result()

    run(4, len(prompts[0]) // 2)  # what is compiled or laid out at first use
    return Side(run, spent)


def started_at(start: int, prompts: list[list[int]]) -> list[list[int]]:
    """The prompts, their first `start` tokens moved to the end."""
    return [prompt[start:] + prompt[:start] for prompt in prompts]


@contextmanager
def vllm_side(options: argparse.Namespace, path: str, prompts: list[list[int]]) -> Iterator[Side]:
    from tests.benchmarks.served_vllm import serving

    with serving(path, options.dtype, options.vllm, Path(tempfile.gettempdir()) / "served_vllm.log") as (url, spent):
        engine = make_engine(VllmServerSettings(urls=url), PolicySettings(dtype=options.dtype, context_tokens=2048))
        engine.load_policy(PolicySnapshot(path, "benchmark"))
        yield engine_side(engine, prompts, spent)
        engine.close()


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
