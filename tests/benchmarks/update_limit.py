"""How much of the processor's arithmetic the update's passes use: `python -m tests.benchmarks.update_limit [--rows
FILE ...] [--groups N] [--policy FOLDER] [--dtype bfloat16] [--adapter lora] [--denormals] [--profile]`.

The rows are those of an iteration (of the sample run, unless others are given), the passes those of the update's trie.

    limit s    what the products of the passes take alone: each shape that occurred, in a loop, forward and backward,
               by the faster of oneDNN and MKL; the products of attention (two forward, five backward) at the mean
               rate of these
    share      limit s / seconds of the passes: CPU seconds of one thread, the smallest of repeats that take turns
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

SAMPLE = "data/sample_run/sample/iteration=00001/training_rows/shard=*/part-training_rows-*.parquet"
Shape = tuple[int, int, int, Any]  # tokens, inputs, outputs, dtype


def passes(asked: argparse.Namespace) -> tuple[Callable[[], int], int]:
    """One forward and backward pass over all rows; it returns the trie's tokens. Then how many rows there are."""
    import numpy as np
    import torch

    from r3l.config.sections import PolicySettings
    from r3l.config.training import TrainingSettings
    from r3l.training.gradients import RowScores, row_gradient
    from r3l.training.policy import load_policy
    from r3l.training.shards import micro_batches, read_groups, survey
    from r3l.training.trie.layouts import Limits, TrieLayout

    groups = survey(asked.rows, "").groups[: asked.groups]
    settings, policy = TrainingSettings(), PolicySettings(adapter=asked.adapter)
    loaded = load_policy(str(asked.policy), None, policy, dtype=asked.dtype, device=torch.device("cpu"), segments=True)
    batches = [read_groups(batch) for batch in micro_batches(groups, settings.micro_batch_tokens)]
    gradients = [[row_gradient(row, RowScores(np.zeros(len(row.positions))), 1.0) for row in rows] for rows in batches]

    def one() -> int:
        loaded.model.zero_grad(set_to_none=True)
        layout, limits = TrieLayout(), Limits(settings.micro_batch_tokens, settings.logits_chunk)
        return sum(
            layout.backward(loaded.decoder, rows, slopes, limits).tokens_computed
            for rows, slopes in zip(batches, gradients, strict=True)
        )

    return one, sum(map(len, batches))


class Counted(TorchDispatchMode):
    """Counts the products of the block by shape: linear layers of both libraries, and the operations of the fused
    attention, whose backward pass is five products to two however it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[Shape] = Counter()
        self.attention = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from r3l.training.trie.attention_slopes import PRODUCTS

        name = function.name().split(".")[0]
        if name == "mkldnn::_linear_pointwise":
            self.products[(len(args[0]), *reversed(args[1].shape), args[0].dtype)] += 1
        elif name in ("aten::mm", "aten::addmm", "aten::addmm_"):
            a, b = args[-2:]
            if PRODUCTS is None or PRODUCTS.fp32_precision != "bf16":  # those are attention's backward pass
                self.products[(a.shape[0], a.shape[1], b.shape[1], a.dtype)] += 1
        elif name == "aten::_scaled_dot_product_flash_attention_for_cpu":
            query, key, causal = args[0], args[1], any(args[4:])
            pairs = query.shape[1] * query.shape[2] * key.shape[2] * query.shape[0] / (2 if causal else 1)
            self.attention += int(pairs * query.shape[3] * 2 * 7)
        return function(*args, **(kwargs or {}))


def alone(shape: Shape, seconds: float = 0.01) -> float:
    """The seconds of one such product in a loop, by the faster library."""
    import torch

    from r3l.lab.warm_start.products import product

    a, b = (torch.randn(rows, shape[1]).to(shape[3]) for rows in (shape[0], shape[2]))
    return min(in_a_loop(lambda: product(a, b), seconds), in_a_loop(lambda: a @ b.T, seconds))


def in_a_loop(call: Callable[[], Any], seconds: float) -> float:
    call()
    best = float("inf")
    for _ in range(3):
        began, calls = time.process_time(), 0
        while time.process_time() - began < seconds / 3:
            call()
            calls += 1
        best = min(best, (time.process_time() - began) / calls)
    return best


def main() -> None:
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", nargs="+", default=sorted(map(str, Path().glob(SAMPLE))))
    parser.add_argument("--groups", type=int, help="of the rows, the first few only")
    parser.add_argument("--policy", type=Path, default=Path("data/policies/embedded"))
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--adapter", choices=["none", "lora"], default="none")
    parser.add_argument("--denormals", action="store_true", help="compute with them, as no update does")
    parser.add_argument("--profile", action="store_true", help="print what the time goes to")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(not asked.denormals)
    one, rows = passes(asked)
    with Counted() as counted:
        tokens = one()
    seconds, limits = [], []
    for _ in range(3):
        began = time.process_time()
        one()
        seconds.append(time.process_time() - began)
        limits.append(sum(number * alone(shape) for shape, number in counted.products.items()))
    flops = sum(2 * number * n * i * o for (n, i, o, _), number in counted.products.items())
    limit = min(limits) * (flops + counted.attention) / flops
    best, giga = min(seconds), (flops + counted.attention) / 1e9
    print(
        f"{rows} rows, {tokens} trie tokens: {best:.2f} s, {giga:.0f} GFLOP, {counted.attention / 1e9:.0f} of attention"
    )
    print(f"alone: {flops / min(limits) / 1e9:.0f} GFLOP/s; limit {limit:.2f} s; share {limit / best:.0%}")
    if asked.profile:
        with torch.profiler.profile() as profiler:
            one()
        print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=30, max_name_column_width=50))


if __name__ == "__main__":
    main()
