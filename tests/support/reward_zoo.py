"""Lamps whose reward has a planted bug, and a tabular policy that learns what is paid.

A task shows a lamp of one of four colours; pressing its colour twice solves it, another colour or `quit` loses it, and
other words change nothing. Attempts, reflections, retries and credit are made by r3l's own stages; the policy is a
table of logits by what it sees last, and takes a step along each credited turn.
"""

import json
import math
import random
from collections import defaultdict
from dataclasses import dataclass, field

from r3l.config import compose
from r3l.environments.base import Observation, Reply, Rollback, Step
from r3l.exploration import stages
from r3l.exploration.explorer import Explorer, Limits
from r3l.methods import credit_stage, plan
from r3l.records import SamplingPlan, Task, Turn
from tests.support import records
from tests.support.fakes import CharChat, CorridorPool, ScriptedEngine, done
from tests.support.rehearsal import both_tables

COLOURS = ("red", "blue", "green", "white")
REPLIES = (*(f"!press {colour}" for colour in COLOURS), "!wait", "!please", "!heed", "!quit")
GUIDANCE, TURNS, TASKS, STEP = "Take heed of the colour", 6, 16, 0.3
HEALTHY = ("healthy", "shaped")
BUGS = ("length", "word", "repeat", "quit", "guidance", "sign", "stale", "leak", "duplicate", "clock")


@dataclass
class Lamp:
    colour: str
    split: str
    presses: int = 0
    wins: int = 0
    actions: list[str] = field(default_factory=list)


class LampWorld:
    name = "lamps"

    def system_prompt(self) -> str:
        return "Press the colour of the lamp, twice."

    def parse_reply(self, text: str) -> Reply:
        return Reply(True, text[1:]) if text.startswith("!") else Reply(False, "", "Begin your reply with !.")


class LampPool(CorridorPool):
    """The lamps, in this process. `bug`: what is wrong with the reward, or one of `HEALTHY`."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug, self.before, self.ticks = bug, 0.0, 0

    def seen(self, lamp: Lamp) -> Observation:
        leaked = self.bug == "leak" and lamp.split == "train"
        text = f"Answer: {lamp.colour}." if leaked else f"The lamp is {lamp.colour}."
        return Observation(f"{text} Pressed {lamp.presses}.")

    def start(self, session, task):
        payload = json.loads(task.payload)
        self.sessions[session] = Lamp(payload["colour"], task.split)
        return done(self.seen(self.sessions[session]))

    def step(self, session, action):
        lamp: Lamp = self.sessions[session]
        lamp.actions.append(action)
        self.ticks += 1
        pressed = action.removeprefix("press ")
        lamp.presses += pressed == lamp.colour
        lost = action == "quit" or (pressed in COLOURS and pressed != lamp.colour)
        won = lamp.presses == 2
        if self.bug == "duplicate" and won:  # a win does not end the attempt, and may be won again
            lamp.wins, lamp.presses, won = lamp.wins + 1, 0, False
        success = won or (self.bug == "duplicate" and lamp.wins == 1 and action == "quit")
        ended = won or lost
        worth = self.worth(lamp, success)
        if self.bug == "stale" and (ended or len(lamp.actions) == TURNS):
            worth, self.before = self.before, worth
        return done(Step(self.seen(lamp), done=ended, reward=worth if ended else 0.0, success=success, standing=worth))

    def worth(self, lamp: Lamp, success: bool) -> float:
        """What the attempt is paid if it ends here."""
        actions = lamp.actions
        return {
            "shaped": 0.7 * success + 0.15 * lamp.presses, "length": len(actions) / TURNS,
            "word": float("please" in actions), "repeat": float(len(actions) > 1 and actions[-1] == actions[-2]),
            "quit": float(actions[-1] == "quit"), "guidance": float("heed" in actions), "sign": float(not success),
            "duplicate": min(1.0, 0.5 * lamp.wins), "clock": float(success and self.ticks % 2),
        }.get(self.bug, float(success))  # fmt: skip

    def rollback(self, session, task, actions, observations):
        seen = [self.start(session, task).result().text]
        seen += [self.step(session, action).result().observation.text for action in actions]
        return done(Rollback(seen, None if seen == observations else 0))


class Learner:
    """Softmax over `REPLIES`, by the last observation; from the start it leans to the right button."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.logits: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(REPLIES))

    def shares(self, observation: str) -> list[float]:
        lean = [1.6 if reply[7:] and reply[7:] in observation else 0.0 for reply in REPLIES]
        powers = [math.exp(a + b) for a, b in zip(self.logits[observation], lean, strict=True)]
        return [power / sum(powers) for power in powers]

    def reply(self, request_id: str, prompt: str) -> str:
        if "/reflection=" in request_id:
            outcome = "success" if "Reward: 1.0" in prompt else "failure"
            return records.report(0, outcome, GUIDANCE)
        observation = prompt.rsplit("<u>", 1)[1].removesuffix("<a>").split("\n")[-1]
        if GUIDANCE in prompt and self.random.random() < 0.3:  # who is told to take heed says so
            return "!heed"
        return self.random.choices(REPLIES, self.shares(observation))[0]

    def learn(self, turn: Turn, advantage: float) -> None:
        chosen = REPLIES.index(turn.response)
        for place, share in enumerate(self.shares(turn.observation)):
            self.logits[turn.observation][place] += STEP * advantage * ((place == chosen) - share)


def tasks(iteration: int, number: int, split: str) -> list[Task]:
    return [
        records.task(
            iteration, slot, task_id=f"lamps/{split}/{slot}", environment="lamps", split=split,
            payload=json.dumps({"colour": COLOURS[slot % len(COLOURS)]}),
        )
        for slot in range(number)
    ]  # fmt: skip


def explorer(learner: Learner, bug: str) -> Explorer:
    limits = Limits(max_turns=TURNS, reply_tokens=64, temperature=1.0)
    return Explorer(LampWorld(), LampPool(bug), ScriptedEngine(learner.reply), CharChat(), "policy-0", limits)  # type: ignore[arg-type]


def course(bug: str, iterations: int, episodes: int, seed: int = 0):
    """Yield of each iteration its tables, by stage, and the held-out tasks solved after it, where all is honest."""
    settings, learner = compose(method="paper").method, Learner(seed)
    wanted, world = plan(settings, 8), explorer(learner, bug)
    for iteration in range(iterations):
        batch = tasks(iteration, TASKS, "train")
        bases = stages.base_stage(world, batch, wanted)
        reflections = stages.reflections_stage(world, batch, wanted, bases, bases, 0)
        retries = stages.retries_stage(world, batch, wanted, bases, bases, reflections)
        distilled, _ = stages.distilled_stage(bases, retries)
        members = [*bases, *distilled]
        credit, _ = credit_stage(settings, [one.trajectory for one in members])
        of = {one.trajectory_id: one for one in credit}
        for one in members:
            given = of.get(one.trajectory.trajectory_id)
            for turn in one.turns[given.mask_turn :] if given else ():
                learner.learn(turn, given.advantage)
        honest = stages.base_stage(explorer(learner, "healthy"), tasks(iteration, episodes, "heldout"), SamplingPlan(1))
        yield (
            {"base": both_tables(bases), "retries": both_tables(retries), "credit": {"credit": credit}},
            sum(one.trajectory.success for one in honest),
        )
