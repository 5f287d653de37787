"""A scripted world, engine and chat format: no model, no process, every number known beforehand."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from r3l.engines.base import Completion, Sampling
from r3l.environments.base import Observation, Reply, Rollback, Step, Verdict
from r3l.errors import R3LError
from r3l.exploration.explorer import Explorer, Limits
from r3l.records import Task

END = 1


def done(value):
    future: Future = Future()
    future.set_result(value)
    return future


def failed(error: Exception) -> Future:
    future: Future = Future()
    future.set_exception(error)
    return future


class CharChat:
    """One token a character (its code point), END after a reply; roles are marked by one character each."""

    stop_ids = (END,)

    def opening(self, messages: Sequence[dict[str, str]], tools: bool = False) -> list[int]:
        return self.ids("".join(f"<{m['role'][0]}>{m['content']}" for m in messages) + "<a>")

    def following(self, messages: Sequence[dict[str, str]], closed: bool = True) -> list[int]:
        return ([] if closed else [END]) + self.opening(messages)

    def text(self, ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in (ids[:-1] if self.closed(ids) else ids))

    def whole(self, text: str) -> str:
        return text

    def closed(self, ids: Sequence[int]) -> bool:
        return bool(ids) and ids[-1] == END

    def ids(self, text: str) -> list[int]:
        return [ord(character) for character in text]


class ScriptedEngine:
    """`script(request_id, prompt text)` gives the reply's text; END is appended unless it ends with an ellipsis."""

    context_limit = 100_000

    def __init__(self, script: Callable[[str, str], str]) -> None:
        self.script = script
        self.requests: list[tuple[str, str, Sampling]] = []

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        prompt = "".join(chr(i) for i in prompt_ids)
        self.requests.append((request_id, prompt, sampling))
        try:
            reply = self.script(request_id, prompt)
        except R3LError as error:
            return failed(error)
        if reply.endswith("…"):
            ids = [ord(c) for c in reply[:-1]]
            return done(Completion(ids, [-0.5] * len(ids), "length"))
        ids = [*(ord(c) for c in reply), END]
        return done(Completion(ids, [-0.5] * len(ids), "stop"))


class CorridorWorld:
    """A corridor: `right` five times wins, `trap` makes winning impossible. Replies are `!action`."""

    name = "corridor"

    def system_prompt(self) -> str:
        return "Walk."

    def parse_reply(self, text: str) -> Reply:
        return Reply(True, text[1:]) if text.startswith("!") else Reply(False, "", "Begin your reply with !.")

    def hints(self, task: Task) -> list[str]:
        return ["Mind where you step.", "There is a trap, keep to the right.", "Go right five times."]


class CorridorPool:
    """The sessions of `CorridorWorld`, in this process. `drift` names (turn) observations that a rollback sees
    changed."""

    def __init__(self, length: int = 5, drift: set[int] | None = None) -> None:
        self.length, self.drift, self.sessions, self.ended = length, drift or set(), {}, []

    def start(self, session: str, task: Task) -> Future[Observation]:
        self.sessions[session] = (0, False)
        return done(Observation("at 0"))

    def step(self, session: str, action: str) -> Future[Step]:
        place, trapped = self.sessions[session]
        place, trapped = place + (action == "right"), trapped or action == "trap"
        self.sessions[session] = (place, trapped)
        won = place >= self.length and not trapped
        return done(
            Step(Observation(f"at {place}{' trapped' if trapped else ''}"), done=won, reward=float(won), success=won)
        )

    def rollback(self, session: str, task: Task, actions: list[str], observations: list[str]) -> Future[Rollback]:
        self.start(session, task)
        seen = ["at 0"]
        for action in actions:
            seen.append(self.step(session, action).result().observation.text if action else observations[len(seen)])
        seen = [f"{text} drifted" if k in self.drift else text for k, text in enumerate(seen)]
        diverged = next((k for k, (a, b) in enumerate(zip(seen, observations, strict=True)) if a != b), None)
        return done(Rollback(seen, diverged))

    def ask_oracle(self, name: str, task: Task, actions: list[str], observations: list[str]) -> Future[Verdict]:
        if "trap" in actions:
            return done(Verdict(actions.index("trap"), "lost", "That was the trap.", "Keep to the right of it."))
        return done(Verdict(len(actions) - 1, "slow"))

    def ask_hints(self, name: str, task: Task) -> Future[list[str]]:
        return done(CorridorWorld().hints(task))

    def end(self, session: str) -> None:
        self.ended.append(session)


def explorer(script: Callable[[str, str], str], pool: CorridorPool | None = None, **limits) -> Explorer:
    """An `Explorer` over the corridor with `script` as its policy."""
    bounds = {"max_turns": 8, "reply_tokens": 64, "temperature": 1.0, **limits}
    return Explorer(
        CorridorWorld(), pool or CorridorPool(), ScriptedEngine(script), CharChat(), "policy-0", Limits(**bounds)
    )  # type: ignore[arg-type]
