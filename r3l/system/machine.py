"""What decides the last bits of a figure beside the code: processor, libraries, compiler, threads."""

import os
import platform
import shutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

Machine = Mapping[str, str]
CPUINFO = Path("/proc/cpuinfo")
DRIVER = Path("/proc/driver/nvidia/gpus")
KERNELS = ("avx", "fma", "f16c", "amx", "asimd", "sve", "bf16", "i8mm")  # features by which libraries choose kernels
BFLOAT16 = {"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"}  # features that multiply it or convert it at once
LIBRARIES = ("torch", "numpy", "transformers", "tokenizers", "peft")


@cache
def this_machine() -> Machine:
    """Describe this machine. Looks at no library itself: importing torch takes seconds."""
    cpu = _fields(CPUINFO)
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    compiler = c_compiler()
    gpus = sorted(_fields(path).get("Model", "") for path in DRIVER.glob("*/information"))
    return {
        "processor": cpu.get("model name") or platform.processor() or platform.machine(),
        "features": " ".join(sorted(flag for flag in flags if flag.startswith(KERNELS))),
        "gpus": ", ".join(gpus),
        "threads": os.environ.get("OMP_NUM_THREADS") or str(len(_cores())),
        "compiler": os.path.basename(os.path.realpath(shutil.which(compiler) or "")) if compiler else "",
        "python": platform.python_version(),
        **{name: found for name in LIBRARIES if (found := _version(name))},
    }


def is_slow_in_bfloat16() -> bool:
    """Tell whether this processor is known to have no instructions for bfloat16: libraries then convert each number."""
    features = this_machine()["features"].split()
    return bool(features) and BFLOAT16.isdisjoint(features)


def c_compiler() -> str:
    """Return the C compiler of this machine, `CC` first; empty where there is none."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((name for name in names if name and shutil.which(name)), "")


def other_machine(a: Machine | None, b: Machine | None) -> dict[str, tuple[str, str]]:
    """Name what differs between the machines of two stages, with both values; nothing where one was not noted."""
    if not a or not b:
        return {}
    pairs = {name: (a.get(name, ""), b.get(name, "")) for name in (*a, *b)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _fields(path: Path) -> dict[str, str]:
    """Return the first value of each name in a file of `name: value`; nothing where there is no such file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in reversed(lines))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
