"""One vLLM server as a child of this process: started by the interpreter of vLLM's own environment, on one GPU, with a
key and a log of its own. It ends with this process, however that one ends (`launch/serve.py --guarded`)."""

import os
import re
import secrets
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.vllm.routes import largest_rank
from r3l.errors import EngineError
from r3l.system.child_environment import child_environment
from r3l.system.home import home
from r3l.system.ports import free_port

SERVE = Path(__file__).parent / "launch" / "serve.py"
PYTHON, OPTIONS = "R3L_VLLM_PYTHON", "R3L_VLLM_OPTIONS"
"""What is run stands in this host's environment, never in settings, which come from stores and forms too: the
interpreter of vLLM's environment, and further options of its server, as on its command line."""
DEFAULT_PYTHON = ".venv-vllm/bin/python"
NOT_PASSED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")  # of this environment, not of vLLM's
STOP_S = 20.0  # more than serve.py's own patience
READ, TAIL = 1 << 24, 1500  # bytes of a log that are looked through, letters that an error repeats
ERROR = re.compile(r"\b\w*(?:Error|Exception): \S.*")


class OwnProcess:
    """`folder` is where the log goes; it may be changed between two starts."""

    def __init__(self, settings: VllmServerSettings, policy: PolicySettings, gpu: str, key: str) -> None:
        self.settings, self.policy, self.gpu, self.key = settings, policy, gpu, key
        self.folder = Path()
        self.port = free_port()
        self.name = f"r3l-own-{secrets.token_hex(4)}"  # what it calls its model: another server calls it otherwise
        self.deaths = 0  # since the last load of a policy
        self.answered = False  # at any time
        self.began = 0  # where the log of the last start begins
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"vllm-gpu{self.gpu}.log"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, model: str) -> None:
        """Start it with the weights in the folder `model`, on a port that is free now. Raise `EngineError` where there
        is no vLLM to start."""
        python = interpreter()
        self.port = free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.began = log.tell()
            self.process = subprocess.Popen(
                [str(python), str(SERVE), "--guarded", model, str(self.port), *self._options()],
                stdin=subprocess.PIPE,  # stays open as long as this process lives
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is for the run, which ends it in its turn
                env=self._environment(),
            )

    def stop(self) -> None:
        """End it and all its processes."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        self.clear_away()
        self.process.wait()
        self.process = None

    def clear_away(self) -> None:
        """End what its group still has: the processes of one that was killed before it could end them itself."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """Find the first error that it logged since its last start, which the others follow from; else the end of its
        log."""
        try:
            with self.log.open("rb") as log:
                log.seek(self.began)
                text = log.read(READ).decode(errors="replace")
        except OSError:
            return "(it has no log)"
        errors = ERROR.findall(text)
        return errors[0] if errors else text[-TAIL:].strip() or "(it said nothing)"

    def _options(self) -> list[str]:
        share = f"{self.settings.memory_share:g}"
        words = ["--gpu-memory-utilization", share, "--served-model-name", self.name, "--dtype", self.policy.dtype]
        return [*words, *shlex.split(os.environ.get(OPTIONS, ""))]

    def _environment(self) -> dict[str, str]:
        variables = {name: value for name, value in child_environment().items() if name not in NOT_PASSED}
        variables |= {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}
        rank = self.policy.lora_rank if self.policy.adapter == "lora" else 0
        if self.settings.batch_invariant:
            variables["VLLM_BATCH_INVARIANT"] = "1"
        return variables | {
            "CUDA_VISIBLE_DEVICES": device(self.gpu),
            "CONTEXT": str(self.policy.context_tokens),
            "HOST": "127.0.0.1",
            "LORA_RANK": str(largest_rank(rank) if rank else 0),
            "SLEEP": str(self.settings.sleep),
            "R3L_ENGINE_KEY": self.key,
            "PYTHONUNBUFFERED": "1",
        }


def interpreter() -> Path:
    """Find the interpreter of vLLM's environment. Raise `EngineError` where it is not there; the message says how it is
    made."""
    path = Path(os.environ.get(PYTHON) or DEFAULT_PYTHON).expanduser()
    python = path if path.is_absolute() else home() / path
    if not python.is_file():
        raise EngineError(
            f"there is no {python}: vLLM needs an environment of its own. Make it with `uv venv --python 3.12 "
            f"{python.parent.parent} && uv pip install --python {python} vllm`, or set {PYTHON} to the interpreter of "
            "an "
            f'existing one, or set engine.gpus="" and engine.urls to a running server'
        )
    return python


def device(gpu: str) -> str:
    """Name a GPU as CUDA does: its number, or where this process sees some only, the one at that place among them.

    Raises:
        EngineError: this process does not see so many.
    """
    visible = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    if visible and int(gpu) >= len(visible):
        raise EngineError(
            f"engine.gpus names GPU {gpu}, and CUDA_VISIBLE_DEVICES shows {len(visible)}: expected numbers below that"
        )
    return visible[int(gpu)] if visible else gpu
