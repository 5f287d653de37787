"""The contract of an environment: text in, text out. It runs in a worker process, so it may block, leak or crash."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.seeds import derive

Role = Literal["user", "tool"]
OnProgress = Callable[[str, int, int], None]  # what, done, in all (0: not known)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment says. `admissible` is empty where the environment does not list its actions. `role`: the
    chat message that it becomes; "tool" is what the tools of a `Tooled` world returned."""

    text: str
    admissible: tuple[str, ...] = ()
    role: Role = "user"


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to one action. `reward` is the final score and counts only where `done` is true. Every number is
    finite and, but for `turn_reward`, in [0, 1]: another one fails the attempt (`r3l.environments.outside`)."""

    observation: Observation
    done: bool = False
    reward: float = 0.0
    success: bool = False
    accepted: bool = True  # False: the environment did not understand the action
    progress: float | None = None  # share of sub-goals reached, where the environment knows it
    standing: float = 0.0  # the reward if the episode is cut off after this step, by the turn or the context limit
    turn_reward: float | None = None  # what this action itself is paid, where the environment pays per turn: any number


@dataclass(frozen=True, slots=True)
class Reply:
    """A policy's reply, parsed. `action` is "" where the reply is not `valid`; `error` is then what the policy is
    told. `span`: from where to where the action stands in the text; None: it is what stands after the thought."""

    valid: bool
    action: str
    error: str = ""
    span: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An oracle's judgement of an episode. `pivot`: the turn to retry from, i.e. the number of leading turns to keep;
    None where nothing is to be done better, or where the oracle does not know the task. `why` is in the environment's
    own words; `cause` and `advice` are sentences that a policy can be told, empty where the oracle has none."""

    pivot: int | None
    why: str
    cause: str = ""
    advice: str = ""


def report(summary: str, cause: str, outcome: str, advice: str, pivot: int) -> dict[str, Any]:
    """Make a report on an episode, in the paper's keys."""
    return {
        "trajectory_summary": summary,
        "root_cause_analysis": cause,
        "trajectory_outcome": outcome,
        "improvement_suggestion": advice,
        "retry_from_step": pivot,
    }


class Environment(Protocol):
    """One task in play. Each world has one such class, listed in `r3l.environments.kinds.ENVIRONMENTS`."""

    def reset(self, task: Task) -> Observation:
        """Start `task` afresh. Raise `WorldError` where the task does not exist."""
        ...

    def step(self, action: str) -> Step: ...

    def snapshot(self) -> object | None:
        """Give a handle for `restore`, or None where only replaying the actions rolls back."""
        ...

    def restore(self, handle: object) -> None: ...

    def close(self) -> None: ...


class World(Protocol):
    """What the rest of the project uses of an environment without running it (cheap to import, no worker needed)."""

    name: str

    def system_prompt(self) -> str: ...

    def parse_reply(self, text: str) -> Reply:
        """Parse a reply's text (without the end-of-turn token) into an action, by the same rule in base, retry and
        evaluation."""
        ...

    def tasks(self, split: str) -> list[Task]:
        """List every task of a split in a fixed order, with `iteration` and `task` 0 and the seed of its content.

        Raises:
            WorldError: the data are not there; the message names the `r3l prepare` command.
        """
        ...

    def make(self) -> Environment:
        """Make an environment. Called in the worker process."""
        ...


def numbered_tasks(world: str, prefix: str, split: str, seed: int, contents: Iterable[tuple[str, str]]) -> list[Task]:
    """Name the tasks of a split by their numbers behind `prefix`, and derive the seed of each; `contents` are the type
    and the payload of each."""
    return [
        Task(0, 0, f"{prefix}/{index:05d}", world, split, task_type, payload, derive(seed, prefix, index))
        for index, (task_type, payload) in enumerate(contents)
    ]


def tasks_asked(world: str, split: str, settings: Any) -> int:
    """Tell how many tasks of a split the settings ask for. Raise `WorldError` where it is another split."""
    if split not in ("train", "heldout"):
        raise WorldError(f"{world} split {split!r}: expected one of train, heldout")
    return int(settings.train_tasks if split == "train" else settings.heldout_tasks)


@runtime_checkable
class Remarking(Protocol):
    """A world that answers with fixed texts of its own, such as verdicts, in addition to its simulator's text."""

    remarks: tuple[str, ...]


def shown_by(world: World) -> list[str]:
    """Collect the fixed texts that a policy is shown in this world: the system prompt, the answer to an empty reply,
    its remarks, its tools."""
    return [
        world.system_prompt(),
        world.parse_reply("").error,
        *(world.remarks if isinstance(world, Remarking) else ()),
        *(json.dumps(tool, sort_keys=True) for tool in tools_of(world)),
    ]


@runtime_checkable
class Packaged(Protocol):
    """A world whose worker processes import packages that are optional. An extra of the same name installs those of a
    world that ships."""

    packages: tuple[str, ...]


@runtime_checkable
class Sourced(Protocol):
    """A world that says in a few words what the tasks and rewards of a split are made from, such as the size of its
    rooms or the catalogue of its shop. It is stored beside every result; asking for it is cheap."""

    def data(self, split: str) -> str: ...


@runtime_checkable
class Waiting(Protocol):
    """A world whose steps wait for other processes: its workers play several tasks at the same time, each in a
    thread."""

    tasks_at_once: int


@runtime_checkable
class Tooled(Protocol):
    """A world whose tools the chat template shows: ``{"type": "function", "function": {"name": ..., "description": ...,
    "parameters": <JSON schema>}}`` each. Empty where the world shows them itself, or has none."""

    tools: Sequence[dict[str, Any]]


def tools_of(world: World) -> tuple[dict[str, Any], ...]:
    """List the tools that the chat template is to show."""
    return tuple(world.tools) if isinstance(world, Tooled) else ()


@runtime_checkable
class Judging(Protocol):
    """A world with an oracle of its own: it says of a failed episode where it went wrong."""

    def oracle_pivot(self, task: Task, actions: Sequence[str], observations: Sequence[str]) -> Verdict:
        """Judge an episode. ``actions[k]`` is turn k's, "" where it had no valid one; ``observations[k]`` came before
        it, the last one after the last action. Called in the worker process."""
        ...


@runtime_checkable
class Hinting(Protocol):
    """A world that has hints for its tasks."""

    def hints(self, task: Task) -> Sequence[str]:
        """List what a policy may be told of a task, from a vague hint to a precise one; empty where there is none.
        Called in the worker process."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A world that counts the versions of its rules. Raise the number with every change that gives the same action
    another answer or reward: the tasks that were played under other rules are then played again. One that has none is
    at 1."""

    version: int


@dataclass(frozen=True, slots=True)
class DataPlan:
    """What is there after looking and fetching: files to verify, splits to list, how many tasks each must have.

    `variant` names what else than the defaults was asked for, so that one data root may hold several.
    """

    variant: str
    splits: tuple[str, ...]
    files: tuple[Path, ...] = ()
    expected: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    remedy: str = ""


@runtime_checkable
class Preparable(Protocol):
    """A world class that can say what data its tasks need, for `r3l prepare`."""

    @staticmethod
    def prepare(settings: Any, root: Path, download: bool, progress: OnProgress, wanted: Sequence[str]) -> DataPlan:
        """Find or fetch the data below `root`, for these splits (none named: all); fetch nothing unless `download`.
        `progress` takes what is done, how much, and of how much in all (0: not known)."""
        ...


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`environment` are its settings, `tasks` how many it has where that is fixed. With `attempts` a problem may be
    answered once (the default) or as often as one asks for, after right/wrong feedback: protocols that are never mixed.

    A world lists its own as the class attribute ``benchmarks: dict[str, Benchmark]``, and `environment` needs no kind.
    The names of a plug-in's are ``KIND/NAME``.
    """

    environment: dict[str, Any]
    split: str
    tasks: int | None = None
    formats: tuple[str, ...] = ("",)
    attempts: bool = False


@dataclass(frozen=True, slots=True)
class Leak:
    """A stored text that holds the gold answer of its task. where: opening, feedback or guidance."""

    subject_id: str
    where: str
    gold: str
    text: str


@runtime_checkable
class Secretive(Protocol):
    """A world whose tasks have an answer that guidance may not tell, even where the reflector found it by itself.

    Its class may have the function ``gold_leaks`` of stored tasks, trajectories, turns and reflections, which returns a
    list of `Leak` for `r3l check`.
    """

    def reveals(self, task: Task, report: str, replies: Sequence[str]) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rollback:
    """Where a session stands after a rollback: `observations[k]` was seen before turn k, `diverged_at` is the first
    turn whose observation differs from the recorded one (None: all equal, the session stands at the pivot)."""

    observations: list[str] = field(default_factory=list)
    diverged_at: int | None = None
    exact: bool = True  # False: the environment ended early or failed on the way
    standing: float = 0.0  # as of the last step taken on the way
    role: Role = "user"  # of the last observation
