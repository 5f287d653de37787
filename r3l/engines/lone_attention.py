"""The compiled part of the engine's attention on a CPU (lone_attention.c), for stored tokens that few new tokens read.

Measured against a batched product of torch for each request: 20 to 25 GB/s of keys and values against 8 to 12. Where there is
no C compiler the engine goes on without it.

Shapes: H key/value heads, R query rows, C columns of scores, D head size.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SOURCE = Path(__file__).with_suffix(".c")
SUMS_IN_ANY_ORDER = ["-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"]  # not -ffast-math: linking
# with it changes how the whole process rounds denormal numbers
DTYPES = {torch.float32: [], torch.bfloat16: ["-DNARROW"]}
ROWS = 24  # query rows of a key head up to which it is faster than one product over them all (measured)


class LoneAttention:
    """Both halves of attention, `scores` and `values`, of one layer for all lone pieces of a step."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._scores, self._values = library.scores, library.values
        for function in (self._scores, self._values):
            function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 7
            function.restype = None
        self._threads = ThreadPoolExecutor(max_workers=64, thread_name_prefix="r3l-attention")

    def scores(self, query_HRD: Tensor, scores_HRC: Tensor, pieces: NDArray[np.int64], layer: int) -> None:
        """Write query x keys of every piece into its columns of `scores_HRC`."""
        self._call(self._scores, query_HRD, scores_HRC, pieces, layer, scores_HRC.shape[2])

    def values(self, weights_HRC: Tensor, out_HRD: Tensor, pieces: NDArray[np.int64], layer: int) -> None:
        """Add weights x values of every piece to `out_HRD`."""
        self._call(self._values, weights_HRC, out_HRD, pieces, layer, weights_HRC.shape[2])

    def _call(self, function: Callable[..., None], read: Tensor, written: Tensor, pieces: NDArray[np.int64], layer: int,
              columns: int) -> None:
        assert read.is_contiguous()
        assert written.is_contiguous()
        assert pieces.flags.c_contiguous
        assert read.dtype == written.dtype == torch.float32
        heads, rows, _ = read.shape

        def some(first: int, last: int) -> None:
            function(read.data_ptr(), written.data_ptr(), pieces.ctypes.data, len(pieces), layer, first, last, heads, rows, columns)

        shares = min(heads, torch.get_num_threads())
        if shares == 1:
            some(0, heads)
        else:  # a call lets go of the interpreter's lock, so threads run side by side
            ends = [heads * share // shares for share in range(shares + 1)]
            list(self._threads.map(some, ends, ends[1:]))


@cache
def compiled(head_size: int, dtype: torch.dtype, device: torch.device) -> LoneAttention | None:
    """For keys and values of `dtype` on a CPU; None on another device, for another dtype, or without a C compiler."""
    found = [name for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if name and shutil.which(name)]
    if device.type != "cpu" or dtype not in DTYPES or not found:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for tuned in (["-march=native"], ["-mcpu=native"], []):
            command = [found[0], "-O3", *tuned, *SUMS_IN_ANY_ORDER, f"-DSIZE={head_size}", *DTYPES[dtype], "-shared", "-fPIC",
                       str(SOURCE), "-o", f"{folder}/lone_attention.so"]
            if subprocess.run(command, capture_output=True).returncode == 0:
                return LoneAttention(ctypes.CDLL(f"{folder}/lone_attention.so"))
    return None
