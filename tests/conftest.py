"""What every test has: a cache folder and a store of its own session, so that none is spared work by what this machine
remembers, or goes on with a run of the checkout, and files that no test waits for the disk to have. A test file that
needs a package of an extra which is not installed is skipped, and says so."""

import gc
import os
import re

import pytest

# A worker of `pytest -n` has one core. Two threads of torch in it would wait for each other in a loop while the other
# worker has the core: ten steps of a small policy took eleven times the processor time.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Packages that only an extra installs (`pyproject.toml`): a store-only checkout has none of them.
EXTRAS = [
    "accelerate", "alfworld", "datasets", "gguf", "gymnasium", "llguidance", "marimo", "math_verify", "mcp",
    "matplotlib", "mlflow", "peft", "prefect_kubernetes", "prefect_ray", "ray", "reasoning_gym", "scienceworld",
    "scipy", "snowballstemmer", "tensorboard", "textworld", "thefuzz", "torch", "transformers", "verifiers",
]  # fmt: skip
MISSING = re.compile(rf"ModuleNotFoundError: No module named '({'|'.join(EXTRAS)})[.']")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R3L_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def default_store(tmp_path_factory):
    """Settings that are composed without a store would be those of a run of this name in the checkout's `data/runs`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R3L_STORE", str(tmp_path_factory.mktemp("store")))
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced():
    """No test's file has to outlive a power cut, and some 10,000 of them are written. Processes that a test starts do
    wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What collecting makes (the modules of torch, transformers and Prefect, 5,100 tests) lives as long as the session:
    the garbage collector does not walk it, then or in any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # nanobind looks at the end for what was never freed


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if report.failed and isinstance(collector, pytest.Module) and (found := MISSING.search(report.longreprtext)):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: needs {found[1]}, which an extra installs")
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Of the fast suite, one worker takes all tests of flows: Prefect's server is started once, not by each worker."""
    from xdist.scheduler import LoadFileScheduling

    class FlowsTogether(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "tests/flows" if nodeid.startswith("tests/flows/") else super()._split_scope(nodeid)

    together = config.getvalue("dist") == "loadfile" and "not slow" in config.option.markexpr
    return FlowsTogether(config, log) if together else None
