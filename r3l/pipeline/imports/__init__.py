"""Runs of other packages, read from the rollouts that they write to disk, as a run of ours.

A reader yields rows of what it finds, and makes samples of a row; here they become tasks, base attempts and, where
advantages are told, credit and training rows. What a package does not write is left empty, never made up, and an event
of each iteration names it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from r3l.config import Config
from r3l.config.compose import compose
from r3l.errors import ConfigError, StoreError
from r3l.pipeline.imports import prime_rl, slime, trinity, trl, verl
from r3l.pipeline.imports.rows import Tokenizer, credit_of, episode, task_of, training_row
from r3l.pipeline.imports.sample import Sample
from r3l.pipeline.policies import IMPORTED
from r3l.pipeline.settings.continuing import save_config
from r3l.pipeline.stages.stage_io import Tables, tables
from r3l.records import Event
from r3l.store.digests import fingerprint
from r3l.store.layout import StageKey, StageRef
from r3l.store.stage import Store

Rows = Callable[[Path], Iterator[tuple[str, Any]]]  # each with its place, which errors name
READERS: dict[str, tuple[Rows, Callable[[str, Any], Iterator[Sample]]]] = {
    "trl": (trl.rows, trl.samples),
    "verl": (verl.rows, verl.samples),
    "prime-rl": (prime_rl.rows, prime_rl.samples),
    "slime": (slime.rows, slime.samples),
    "trinity": (trinity.rows, trinity.samples),
}


def import_run(store: Store, run: str, package: str, path: Path, tokenizer: str = "") -> dict[str, int]:
    """Write a run of another package's rollouts, an iteration for each of its steps; count them. An import that was
    cut off is completed by the next one of the same rows.

    Args:
        tokenizer: folder of a model; where ids are not told its tokenizer makes them of the texts anew, and texts of
            ids where those are not told. Empty: there are none.

    Raises:
        ConfigError: an unknown package, or no tokenizer in the folder.
        StoreError: nothing is there to read, a row can't be read, or the run exists with other rows.
    """
    if package not in READERS:
        raise ConfigError(f"--from {package!r}: expected one of {', '.join(READERS)}")
    both_ways = tokenizer_in(tokenizer)
    steps: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples(package, path):
        steps[sample.step].append(sample)
    if not steps:
        raise StoreError(f"{path} holds no rollouts of {package}")
    iterations = []
    for iteration, (step, its) in enumerate(sorted(steps.items())):
        groups = grouped(its)
        event = Event(iteration, "base", "", "not_told", f"{package} does not write {untold(its, tokenizer)}")
        stages = identified(run, iteration, stages_of(iteration, groups, package, both_ways, event), package, step)
        iterations.append((config_of(run, package, len(groups), max(map(len, groups))), step, stages))
    identities = {key: identity for _, _, stages in iterations for key, _, identity in stages}
    if any(identities.get(ref.key) != ref.fingerprint for ref in store.stages(run)):
        raise StoreError(f"{run} exists in {store.root} with other rows; give the import a name of its own: --run NAME")
    for iteration, (config, step, stages) in enumerate(iterations):
        save_config(store, config, iteration)
        commit(store, stages, step)
    rows = [its for _, _, stages in iterations for _, its, _ in stages]
    attempts, credited = (sum(len(its.get(table, ())) for its in rows) for table in ("trajectories", "credit"))
    return {"iterations": len(iterations), "attempts": attempts, "credited": credited}


def stages_of(
    iteration: int, groups: Sequence[Sequence[Sample]], package: str, tokenizer: Tokenizer, event: Event
) -> dict[str, Tables]:
    """Make the stages of the iteration that has these groups; one without rows is left out."""
    members = [
        (task_of(iteration, slot, group[0], package), attempt, one)
        for slot, group in enumerate(groups)
        for attempt, one in enumerate(group)
    ]
    heads = [task for task, attempt, _ in members if attempt == 0]
    stages: dict[str, Tables] = {
        "tasks": {"tasks": heads},
        "base": tables([episode(*member, tokenizer) for member in members], [event]),
        "credit": {"credit": [one for both in zip(heads, groups, strict=True) for one in credit_of(*both)]},
        "training_rows": {"training_rows": [row for member in members if (row := training_row(*member))]},
    }
    return {stage: its for stage, its in stages.items() if any(its.values())}


def identified(
    run: str, iteration: int, stages: dict[str, Tables], package: str, step: int
) -> list[tuple[StageKey, Tables, str]]:
    """Give each stage its key and its identity: no settings of ours made it, so that is of its rows."""
    chain: list[tuple[StageKey, Tables, str]] = []
    for stage, its in stages.items():
        key = StageKey(run, "", iteration, stage, None if stage == "tasks" else 0)
        mark = {"from": package, "step": step, "rows": sha256(repr(its).encode()).hexdigest()}
        chain.append((key, its, fingerprint(stage, {}, [identity for *_, identity in chain[-1:]], extra=mark)))
    return chain


def samples(package: str, path: Path) -> Iterator[Sample]:
    """Yield the samples of a package. Raise `StoreError` for the first row that has another form than its reader
    expects."""
    rows, samples_of = READERS[package]
    for place, row in rows(path):
        try:
            for sample in samples_of(place, row):
                refuse_odd_texts(sample)
                yield sample
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise StoreError(f"{place}: not what {package} writes ({error!r:.200})") from error


def refuse_odd_texts(sample: Sample) -> None:
    """Raise ValueError for half of a character (a lone surrogate), which no table holds."""
    for text in (sample.prompt, sample.group, *(one for turn in sample.turns for one in turn)):
        text.encode()


def commit(store: Store, stages: Sequence[tuple[StageKey, Tables, str]], step: int) -> None:
    """Store the stages of an iteration that are not there yet. `r3l check` compares them with no settings."""
    parents: list[StageRef] = []
    for key, its, identity in stages:
        ref = store.find(key, identity)
        parents = [ref or store.commit(key, its, fingerprint=identity, parents=parents, metrics={"step": step})]


def untold(its: Sequence[Sample], tokenizer: str) -> str:
    """Say what is left empty in these samples."""
    tokens = [one.tokens for one in its if one.tokens]
    ids = f"token ids are those of the tokenizer in {tokenizer}" if tokenizer else "there are no token ids"
    likely = any(not math.isnan(logprob) for one in tokens for logprob in one.logprobs)
    rows = any(one.advantages for one in tokens)
    worth = rows or any(one.advantage is not None for one in its)
    texts = any(one.turns for one in its)
    names = {"texts": texts, "log-probabilities (NaN)": likely, "advantages": worth, "training rows": rows}
    absent = [*(name for name, is_told in names.items() if not is_told), "which loss reads a row, and how it is"]
    solved = "an attempt counts as solved from a reward of 1 on"
    said = f"{', '.join(absent)} normalised, the policy's digest, seeds and seconds"
    return "; ".join([said, *([] if tokens else [ids]), solved])


def tokenizer_in(folder: str) -> Tokenizer:
    """Load a tokenizer; without one texts have no ids. Raise `ConfigError` where the folder has none."""
    if not folder:
        return Tokenizer()
    file = Path(folder, "tokenizer.json")
    if not file.is_file():
        raise ConfigError(f"--tokenizer {folder}: no tokenizer.json there")
    from tokenizers import Tokenizer as Model

    model = Model.from_file(str(file))
    return Tokenizer(
        lambda text: list(model.encode(text, add_special_tokens=False).ids),
        lambda ids: str(model.decode(ids, skip_special_tokens=False)),
    )


def grouped(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Bring the samples of a task together: balancing between GPUs may have parted them."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group or sample.prompt].append(sample)
    return list(groups.values())


def config_of(run: str, package: str, tasks: int, group_size: int) -> Config:
    """Make settings that say where the run is from; nothing can be played with them."""
    places = [f"{name}={IMPORTED}{package}" for name in ("policy.path", "policy.name")]
    places.append(f"environment.toolset=imported_from_{package.replace('-', '_')}:Nothing")  # which nobody can play
    assignments = [
        *places,
        f"rollout.tasks={tasks}",
        f"rollout.group_size={max(2, group_size + group_size % 2)}",
    ]  # ours are even
    return compose(run=run, method="grpo", environment="tools", assignments=assignments)
