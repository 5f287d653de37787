"""The engine's attention on a CPU as one compiled function (compiled_attention.c) for all short feeds of a step and
layer.

Torch needs a product for each request and each shared piece, twice a layer, scores padded to the longest request, and a
softmax over them all. Where there is no C compiler the engine goes on with that (attention.py).

Shapes: H key/value heads, G query heads for each, N new tokens, D head size.
"""

import ctypes
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from r3l.system.machine import c_compiler

SOURCE = Path(__file__).with_suffix(".c")
# No sum may be reordered: its order is the result. And tuned for an AMD Zen, GCC fuses products with their sums in some
# loops and not in others, so that rows side by side had other bits than a row alone.
OPTIONS = ["-O3", "-fno-trapping-math", "-fno-math-errno", "-mtune=generic"]
PANEL, BLOCK = 64, 64  # as in compiled_attention.c
DTYPES = {torch.float32: [], torch.bfloat16: ["-DNARROW"]}
ADDRESSES = ("queries", "keys", "values", "out")
COUNTS = (
    "query_token",
    "query_head",
    "key_token",
    "key_head",
    "value_token",
    "value_head",
    "layer",
    "heads",
    "group",
    "tokens",
    "longest",
)


class _Step(ctypes.Structure):
    """`step` of compiled_attention.c."""

    _fields_ = (
        *[(name, ctypes.c_void_p) for name in ADDRESSES],
        *[(name, ctypes.c_int64) for name in COUNTS],
        ("scaling", ctypes.c_float),
    )


class CompiledAttention:
    """Pieces, in the order of their positions: (address, capacity, tokens, first row, last row, position). Feeds:
    (first token, tokens, position). Row = token * G + query head.

    A token's result has the same bits whatever else is in the step, and however its sequence is cut.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._attend = library.attend
        self._attend.argtypes = [
            ctypes.POINTER(_Step),
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_void_p,
            *[ctypes.c_int64] * 3,
            ctypes.c_void_p,
        ]
        self._attend.restype = None
        self._threads = ThreadPoolExecutor(max_workers=64, thread_name_prefix="r3l-attention")
        self._scratch = threading.local()  # of each engine: they share this library

    def attend(
        self,
        query_HND: Tensor,
        key_HND: Tensor,
        value_HND: Tensor,
        pieces: NDArray[np.int64],
        feeds: NDArray[np.int64],
        layer: int,
        scaling: float,
    ) -> Tensor:
        """Attend for the first N tokens, those of `feeds`: (N, H * G, D); query_HND has H * G heads."""
        query, key, value = (
            side.float() if side.stride(2) == 1 else side.float().contiguous()
            for side in (query_HND, key_HND, value_HND)
        )
        heads, _, size = key.shape
        group, tokens = len(query) // heads, int(feeds[-1, 0] + feeds[-1, 1])
        longest = int((feeds[:, 1] + feeds[:, 2]).max()) + BLOCK
        # a head's rows are never split: their sum keeps one order, whatever the number of threads
        shares = min(heads, torch.get_num_threads())
        out, scratch = torch.empty(tokens, len(query), size), self._room(shares, PANEL * longest)
        step = _Step(
            query.data_ptr(),
            key.data_ptr(),
            value.data_ptr(),
            out.data_ptr(),
            *[side.stride(place) for side in (query, key, value) for place in (1, 0)],
            layer,
            heads,
            group,
            tokens,
            longest,
            scaling,
        )

        def some(first: int, last: int, room: int) -> None:
            self._attend(step, pieces.ctypes.data, len(pieces), feeds.ctypes.data, len(feeds), first, last, room)

        rooms = [part.data_ptr() for part in scratch]
        if shares == 1:
            some(0, heads, rooms[0])
        else:  # a call lets go of the interpreter's lock, so threads run side by side
            ends = [heads * share // shares for share in range(shares + 1)]
            list(self._threads.map(some, ends, ends[1:], rooms))
        return out

    def _room(self, shares: int, numbers: int) -> Tensor:
        """Give scratch room for each share of the heads. It is kept: the system has to zero fresh memory."""
        room: Tensor | None = getattr(self._scratch, "room", None)
        if room is None or room.shape[0] < shares or room.shape[1] < numbers:
            room = self._scratch.room = torch.empty(shares, numbers)
        return room


@cache
def compile_attention(head_size: int, dtype: torch.dtype, device: torch.device) -> CompiledAttention | None:
    """Compile the attention for keys and values of `dtype` on a CPU; None on another device, for another dtype, or
    without a C compiler."""
    return build(head_size, dtype) if device.type == "cpu" and dtype in DTYPES else None


def build(head_size: int, dtype: torch.dtype, options: Sequence[str] = ()) -> CompiledAttention | None:
    """Compile the attention for this processor and a key of `DTYPES`, with further `options`; None without a C
    compiler."""
    compiler = c_compiler()
    if not compiler:
        return None
    with tempfile.TemporaryDirectory() as folder:
        # for ARM a compiler may know only -mcpu=native, and another one neither
        for processor_options in (["-march=native"], ["-mcpu=native"], []):
            command = [
                compiler,
                *OPTIONS,
                *processor_options,
                f"-DSIZE={head_size}",
                *DTYPES[dtype],
                *options,
                "-shared",
                "-fPIC",
                str(SOURCE),
                "-o",
                f"{folder}/attention.so",
            ]
            if subprocess.run(command, capture_output=True).returncode == 0:
                return CompiledAttention(ctypes.CDLL(f"{folder}/attention.so"))
    return None
