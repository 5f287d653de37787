"""How processes of Python start here: with no module from the working folder, which may be somebody else's.

Those that play environments, grade answers and run the update get variables by name, so that no credential of whoever
started the run is in a process that works with what a model wrote. None of them opens the store itself: rows and
policies lie on this host when they start.
"""

import os
import sys
from collections.abc import Mapping

from r3l.system.home import PACKAGE

PYTHON = (sys.executable, "-P")  # the working folder, which `-m` and `-c` put first on sys.path, stays off it
SAFE_PATH = "PYTHONSAFEPATH"  # says the same to the Python processes that a child starts: torchrun's, Prefect's

PASS = "R3L_PASS"  # further names, with commas: for an environment of one's own that needs them
# fmt: off
NAMES = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "CC",
    "PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "NLTK_DATA", "ALFWORLD_DATA", "JAVA_HOME",
    "R3L_HOME", "R3L_CACHE", "R3L_STORE", "R3L_JOB_POINTER", "R3L_PLUGINS", "R3L_PLUGIN_PATH",
    "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TOKENIZERS_PARALLELISM",
))
BEGINNINGS = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "TRITON_", "PET_", "OMP_", "MKL_", "GOMP_",
    "OPENBLAS_", "ATEN_", "DNNL_", "ONEDNN_", "MALLOC_", "PYTHONWARN", "COVERAGE_",
)
# fmt: on


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Choose what a child process gets of this process's environment, and add `extra`."""
    further_names = {name.strip() for name in os.environ.get(PASS, "").split(",")}
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in NAMES or name in further_names or name.startswith(BEGINNINGS)
    }
    return importable(variables) | dict(extra or {})


def importable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the same variables with this package on the module path, and the working folder off it: an empty entry
    would mean that folder."""
    folders = [str(PACKAGE.parent), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)), SAFE_PATH: "1"}
