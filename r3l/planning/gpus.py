"""The makers' figures of GPUs: memory, bandwidth, and dense bfloat16 arithmetic."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    memory_gb: float
    terabytes_s: float  # what sampling is bound by
    teraflops: float  # what training is bound by


GPUS = {
    "l4": Gpu(24, 0.3, 121),
    "rtx4090": Gpu(24, 1.008, 165.2),
    "l40s": Gpu(48, 0.864, 362),
    "a100": Gpu(80, 1.935, 312),  # PCIe
    "h20": Gpu(96, 4.0, 148),
    "h100": Gpu(80, 3.35, 989),  # SXM
    "h200": Gpu(141, 4.8, 989),
}
