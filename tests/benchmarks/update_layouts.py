"""The update's layouts on the same rows: `python -m tests.benchmarks.update_layouts [--lengths varied|equal] [--width
256] [--policy FOLDER] [--trl]`.

One group of eight as R3L makes it (four bases, four retries from a pivot, masked before it). Each layout runs in a
process of its own, so that peaks are its own; seconds are CPU seconds of one thread, the best of some repeats.

    tokens/s   tokens of the eight sequences a CPU second, forward and backward
    wasted     share of the tokens run that a trie would not need
    extra MB   peak resident memory above that of the loaded model

With --trl (`pip install trl` first) the step of TRL's GRPOTrainer too, which pads. With --policy FOLDER a LoRA adapter
of rank 16 on that model in bfloat16 is trained, instead of a small model in float32; TRL makes its adapter with peft.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PROMPT, VOCABULARY, LAYERS = 400, 2048, 6
RANK = 16


def group_of_eight(lengths: str, scale: float = 1.0, seed: int = 0) -> list[dict[str, Any]]:
    """`scale`: of all lengths, the prompt's too."""
    from tests.support.update_world import record

    rng = np.random.default_rng(seed)
    first = int(PROMPT * scale)
    prompt = rng.integers(0, VOCABULARY, first)
    records: list[dict[str, Any]] = []
    for i in range(4):
        base_length, pivot, retry_length = (int(length * scale) for length in (800, 400, 400))
        if lengths == "varied":
            base_length = int(rng.integers(300, 1300) * scale)
            pivot, retry_length = int(base_length * rng.uniform(0.3, 0.7)), int(rng.integers(150, 900) * scale)
        base = rng.integers(0, VOCABULARY, base_length)
        for reply in (base, np.r_[base[:pivot], rng.integers(0, VOCABULARY, retry_length)]):
            weights = np.r_[np.zeros(first + pivot), np.full(len(reply) - pivot, 1 / len(reply) / 8)]
            records.append(
                record(
                    f"r{len(records)}",
                    np.r_[prompt, reply],
                    weights,
                    advantage=(-1.0) ** len(records) * (0.5 + 0.3 * i),
                )
            )
    return records


def make_decoder(width: int, device: str = "cpu", liger: bool = False) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from r3l.training.trie.decoder import Decoder

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=width * 11 // 4 // 32 * 32, num_hidden_layers=LAYERS,
        vocab_size=VOCABULARY, num_attention_heads=max(4, width // 64), num_key_value_heads=2,
        max_position_embeddings=32768,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().to(device)
    if liger:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=model)
    return Decoder(model)


def load_decoder(folder: Path, dtype: str, adapted: bool) -> Any:
    import torch

    from r3l.config.sections import PolicySettings
    from r3l.training.policy import DTYPES, load_model, load_policy
    from r3l.training.trie.decoder import Decoder

    if not adapted:
        return Decoder(load_model(folder, DTYPES[dtype]), DTYPES[dtype])
    settings = PolicySettings(adapter="lora", lora_rank=RANK, lora_alpha=2 * RANK)
    return load_policy(str(folder), None, settings, dtype=dtype, device=torch.device("cpu"), segments=True).decoder


def measure_layout(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from r3l.training.gradients import RowScores, row_gradient
    from r3l.training.trie.layouts import Limits
    from r3l.training.trie.tree import build_trie
    from tests.support.update_world import rows_of

    torch.set_num_threads(1)
    rows = rows_of(group_of_eight(options.lengths, options.scale))
    decoder = (
        load_decoder(options.policy, options.dtype, adapted=name != "trl")
        if options.policy
        else make_decoder(options.width, options.device, liger=name == "liger")
    )
    limits = Limits(micro_batch_tokens=65536, logits_chunk=1024)
    gradients = [row_gradient(row, RowScores(np.zeros(len(row.positions))), 1.0) for row in rows]
    needed = build_trie([row.token_ids for row in rows]).tokens_computed
    rank = RANK if options.policy else 0
    step = step_of(name, decoder, rows, gradients, limits, int(PROMPT * options.scale), rank)
    meter, seconds = Meter(options.device), []
    for _ in range(options.repeats):
        decoder.model.zero_grad(set_to_none=True)
        started = meter.seconds()
        computed = step()
        seconds.append(meter.seconds() - started)
    tokens = sum(row.length for row in rows)
    return {
        "layout": name, "tokens": tokens, "computed": computed, "seconds": min(seconds),
        "tokens/s": tokens / min(seconds), "wasted": 1 - needed / computed, "extra MB": meter.extra_mb(),
    }  # fmt: skip


class Meter:
    """Seconds of the processor, or on the clock where a GPU works; memory beyond what is held at the start."""

    def __init__(self, device: str) -> None:
        self.gpu = device != "cpu"
        self.before = self.held() if self.gpu else resident("VmRSS")
        if not self.gpu:
            Path("/proc/self/clear_refs").write_text("5")  # start the peak anew

    def held(self) -> float:
        import torch

        return torch.cuda.max_memory_allocated() / 2**20

    def seconds(self) -> float:
        if not self.gpu:
            return time.process_time()
        import torch

        torch.cuda.synchronize()
        return time.perf_counter()

    def extra_mb(self) -> float:
        return (self.held() if self.gpu else resident("VmHWM")) - self.before


def step_of(
    name: str, decoder: Any, rows: list[Any], gradients: list[Any], limits: Any, prompt: int, rank: int
) -> Callable[[], int]:
    """One forward and backward pass; it returns the tokens that it ran."""
    if name == "trl":
        from tests.benchmarks.trl_step import trl_step

        pass_of_trl, computed = trl_step(decoder.model, rows, prompt, rank), len(rows) * max(row.length for row in rows)
        return lambda: pass_of_trl() or computed
    from r3l.training.trie.exactness import choose_layout

    layout, _ = choose_layout("padded" if name == "liger" else name, decoder.model.config, decoder.device)
    return lambda: layout.backward(decoder, rows, gradients, limits).tokens_computed


def resident(field: str) -> float:
    """MB of this process: VmRSS now, VmHWM at its peak."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def compared(layouts: Sequence[str], rounds: int, **settings: object) -> dict[str, dict[str, Any]]:
    """The best of each layout, a process each in each round."""
    found: dict[str, list[dict[str, Any]]] = {layout: [] for layout in layouts}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    for _ in range(rounds):
        for layout in layouts:
            done = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.update_layouts", "--layout", layout, *words],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            found[layout].append(json.loads(done.stdout.splitlines()[-1]))
    return {layout: min(ones, key=lambda one: one["seconds"]) for layout, ones in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", choices=["varied", "equal"], default="varied")
    parser.add_argument("--scale", type=float, default=1.0, help="of the lengths")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--policy", type=Path, help="a transformers folder")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16", help="of the policy's products")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--trl", action="store_true", help="beside TRL's step")
    parser.add_argument("--liger", action="store_true", help="beside Liger's kernels under padded rows: a GPU only")
    parser.add_argument("--layout", help="run this one here and print JSON")
    options = parser.parse_args()
    if options.layout:
        print(json.dumps(measure_layout(options.layout, options)))
        return
    print(f"{options.lengths} lengths, {options.policy or f'width {options.width}, {LAYERS} layers'}")
    layouts = ("trie", "packed", "padded", *(["trl"] if options.trl else []), *(["liger"] if options.liger else []))
    passed = {name: getattr(options, name) for name in ("lengths", "scale", "width", "dtype", "device", "repeats")}
    passed |= {"policy": options.policy} if options.policy else {}
    for layout, one in compared(layouts, options.rounds, **passed).items():
        print(
            f"{layout:7} {one['tokens/s']:8.0f} tokens/s  {one['seconds']:6.2f} s  wasted {one['wasted']:6.1%}  "
            f"extra {one['extra MB']:6.0f} MB"
        )


if __name__ == "__main__":
    main()
