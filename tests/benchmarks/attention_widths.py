"""The compiled attention with vectors of 4, 8 and 16 numbers, and with the width that it chooses for this processor.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.attention_widths [--repeats 60]

All widths attend in turns to the same keys and values: a shared piece of 700 tokens and one of 300 for each feed.
CPU milliseconds of a layer, the median; the ratio is to vectors of 16, which the engine once had on every processor.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from r3l.engines.embedded.compiled_attention import CompiledAttention, build

SHARED, OWN = 700, 300
WIDTHS = {"16": ["-DLANES=16"], "8": ["-DLANES=8"], "4": ["-DLANES=4"], "chosen": []}
LOADS = {  # head size, key/value heads, query heads for each, feeds, tokens of a feed
    "embedded, decode of 64": (32, 4, 1, 64, 1),
    "embedded, 16 observations of 30": (32, 4, 1, 16, 30),
    "SmolLM2, decode of 24": (64, 3, 3, 24, 1),
    "SmolLM2, 8 observations of 30": (64, 3, 3, 8, 30),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    for name, (size, heads, group, feeds, tokens) in LOADS.items():
        load = Load(size, heads, group, feeds, tokens)
        kernels = {width: build(size, torch.float32, options) for width, options in WIDTHS.items()}
        found = {width: kernel for width, kernel in kernels.items() if kernel}
        if not found:
            raise SystemExit("no C compiler: expected CC, cc, gcc or clang on the path")
        spent = load.spent(found, repeats)
        print(name, *(f"{width} {ms:.2f} ms ({spent['16'] / ms:.2f}x)" for width, ms in spent.items()), sep=", ")


class Load:
    def __init__(self, size: int, heads: int, group: int, feeds: int, tokens: int) -> None:
        shape = (feeds * tokens, size)
        self.query, self.key, self.value = (torch.randn(count, *shape) for count in (heads * group, heads, heads))
        self.stores = [torch.randn(1, 2, heads, count, size) for count in (SHARED, *[OWN] * feeds)]
        readers = [(0, feeds * tokens), *((feed * tokens, (feed + 1) * tokens) for feed in range(feeds))]
        self.pieces = np.array([piece(store, group, *of) for store, of in zip(self.stores, readers, strict=True)])
        self.feeds = np.array([(feed * tokens, tokens) for feed in range(feeds)])

    def spent(self, kernels: dict[str, CompiledAttention], repeats: int) -> dict[str, float]:
        """Return the CPU milliseconds of each, and hold their results against those of the first."""
        expected = self.attend(next(iter(kernels.values())))
        taken: dict[str, list[float]] = {width: [] for width in kernels}
        for _ in range(repeats):
            for width, kernel in kernels.items():
                began = time.process_time()
                found = self.attend(kernel)
                taken[width].append(1000 * (time.process_time() - began))
                torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
        return {width: statistics.median(times) for width, times in taken.items()}

    def attend(self, kernel: CompiledAttention) -> Tensor:
        size = self.query.shape[-1]
        return kernel.attend(self.query, self.key, self.value, self.pieces, self.feeds, 0, size**-0.5)


def piece(store: Tensor, group: int, first: int, last: int) -> NDArray[np.int64]:
    return np.array([store.data_ptr(), store.shape[3], store.shape[3], first * group, last * group])


if __name__ == "__main__":
    main()
