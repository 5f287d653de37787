"""The sessions of one worker: which episode stands where, and the snapshots that later rollbacks start from.

States of a task form a tree: the root is its start, an edge is an action, a node holds what was observed and a
snapshot. Sessions of one task walk the same tree, so a rollback finds the states that earlier sessions went through.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from r3l.environments.base import Environment, Observation, Role, Rollback, Step, World
from r3l.environments.outside import observation_of, step_of
from r3l.errors import WorldError
from r3l.records import Task

REMEMBERED_TASKS = 32  # trees kept, the least recently used go first
REMEMBERED_STATES = 2048  # of one tree (ALFWorld: 3.6 kB each): beyond it states are passed through, not kept


@dataclass(slots=True)
class State:
    """A state that some session was in."""

    observation: str
    done: bool
    handle: object | None
    standing: float = 0.0
    role: Role = "user"
    after: dict[str, State] = field(default_factory=dict)


@dataclass(slots=True)
class Tree:
    root: State
    states: int = 1


@dataclass(slots=True)
class Session:
    """An episode in progress. `state` is None where it left the remembered tree."""

    task: Task
    environment: Environment
    tree: Tree
    state: State | None
    seconds: float = 0.0  # that the world took for its calls so far


class Sessions:
    """All sessions of a worker process; one thread calls it. Environments are used again when an episode has ended."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sessions: dict[str, Session] = {}
        self.trees: OrderedDict[str, Tree] = OrderedDict()
        self.idle: list[Environment] = [world.make()]  # an engine is imported now, not on some call's time
        self.counts: Counter[str] = Counter()

    def start(self, session_id: str, task: Task) -> Observation:
        self.end(session_id)
        environment = self.idle.pop() if self.idle else self.world.make()
        opening = observation_of(environment.reset(task))
        tree = self.tree(task, State(opening.text, False, environment.snapshot(), role=opening.role))
        self.sessions[session_id] = Session(task, environment, tree, tree.root)
        return opening

    def step(self, session_id: str, action: str) -> Step:
        """Take a step. Raise `WorldError` where there is no such session."""
        if session_id not in self.sessions:
            raise WorldError(f"no session {session_id}: it was never started, or it has ended")
        session = self.sessions[session_id]
        step = step_of(session.environment.step(action))
        session.state = self.remember(session, action, step)
        self.counts["steps"] += 1
        return step

    def rollback(self, session_id: str, task: Task, actions: list[str], observations: list[str]) -> Rollback:
        """Start a new session in the state after `actions`; see `WorldPool.rollback`. It is ended where it diverged."""
        opening = self.start(session_id, task)
        session, observations_got, standing = self.sessions[session_id], [opening.text], 0.0
        role = opening.role
        if opening.text != observations[0]:
            return self.diverged(session_id, observations_got, 0)
        was_restored = was_replayed = False
        for turn, action in enumerate(actions):
            # a malformed reply never reached the world: its answer stands as it was recorded, and the state too
            if action == "":
                observations_got.append(observations[turn + 1])
                role = "user"
                continue
            # an earlier session took this very action here: walk the tree, and restore once at the end
            node = session.state.after.get(action) if session.state else None
            if node is not None and node.handle is not None:
                text, done, standing, role = node.observation, node.done, node.standing, node.role
                session.state, was_restored = node, True
            else:
                step = self.replay(session, action)
                text, done, standing, role = step.observation.text, step.done, step.standing, step.observation.role
                was_replayed = True
            observations_got.append(text)
            # what is observed decides, step by step: the first difference names the turn, and nothing is played on from
            # it
            if text != observations[turn + 1] or done:
                return self.diverged(session_id, observations_got, turn + 1, exact=not done)
        # the walk along the tree left the environment where it was
        if session.state and session.state.handle is not None:
            session.environment.restore(session.state.handle)
        self.counts["replays" if was_replayed else "restores"] += was_replayed or was_restored
        return Rollback(observations_got, standing=standing, role=role)

    def replay(self, session: Session, action: str) -> Step:
        """Take one recorded action again, from the remembered state where there is one."""
        # the steps before may have been walked in the tree alone: put the environment there first
        if session.state and session.state.handle is not None:
            session.environment.restore(session.state.handle)
        step = step_of(session.environment.step(action))
        session.state = self.remember(session, action, step)
        self.counts["steps"] += 1
        return step

    def diverged(self, session_id: str, seen: list[str], turn: int, exact: bool = True) -> Rollback:
        self.end(session_id)
        return Rollback(seen, diverged_at=turn, exact=exact)

    def end(self, session_id: str) -> None:
        """End a session. Do nothing if there is no such session."""
        if session := self.sessions.pop(session_id, None):
            self.idle.append(session.environment)

    def close(self) -> None:
        for session_id in list(self.sessions):
            self.end(session_id)
        while self.idle:
            self.idle.pop().close()

    def tree(self, task: Task, root: State) -> Tree:
        """Find the task's tree, made anew where the task now starts otherwise."""
        key = f"{task.task_id}\x1f{task.payload}\x1f{task.seed}"
        tree = self.trees.get(key)
        if tree is None or tree.root.observation != root.observation:
            tree = self.trees[key] = Tree(root)
        self.trees.move_to_end(key)
        while len(self.trees) > REMEMBERED_TASKS:
            self.trees.popitem(last=False)
        return tree

    def remember(self, session: Session, action: str, step: Step) -> State | None:
        """Keep the state after `action` where the environment gives snapshots and there is room."""
        if session.state is None:
            return None
        node = session.state.after.get(action)
        if node is not None and (node.observation, node.done) == (step.observation.text, step.done):
            return node  # another session was here: its states after this one are found again too
        handle = session.environment.snapshot()
        state = State(step.observation.text, step.done, handle, step.standing, step.observation.role)
        # beyond the room a state is passed through: it can be gone on from, but no later session finds it
        if handle is None or session.tree.states >= REMEMBERED_STATES:
            return state if handle is not None else None
        if action not in session.state.after:
            session.tree.states += 1
        session.state.after[action] = state
        return state
