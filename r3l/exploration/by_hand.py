"""An episode that a person plays, by the rules that a policy plays by."""

from dataclasses import dataclass, field, replace

from r3l.config.environments import EnvironmentSettings
from r3l.engines.chat_format import ChatFormat
from r3l.environments.base import Observation, Reply, Rollback, Step, World, tools_of
from r3l.environments.outside import reply_of
from r3l.environments.workers.pool import WorldPool
from r3l.errors import WorldError
from r3l.records import Task

SESSION = "by hand"


@dataclass
class ByHand:
    """`chat`: shows each context as the text of the token ids that a policy is given; None: observations are shown as
    they come, and an action may be typed without the tags of a reply."""

    world: World
    pool: WorldPool
    settings: EnvironmentSettings
    task: Task
    chat: ChatFormat | None = None
    actions: list[str] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)

    def start(self) -> Observation:
        opening = self.pool.start(SESSION, self.task).result()
        self.actions, self.observations = [], [opening.text]
        return opening

    def prompt(self, opening: Observation) -> str:
        """Write what a policy sees before its first reply."""
        system = self.world.system_prompt()
        if self.chat is None:
            return f"{system}\n\n{opening.text}"
        messages = [{"role": "system", "content": system}, {"role": opening.role, "content": opening.text}]
        return self.chat.text(self.chat.opening(messages, tools=bool(tools_of(self.world))))

    def context(self, observation: Observation) -> str:
        """Write what a policy sees between two replies."""
        if self.chat is None:
            return observation.text
        return self.chat.text(self.chat.following([{"role": observation.role, "content": observation.text}]))

    def parsed(self, text: str) -> Reply:
        reply = reply_of(self.world, text if self.chat is None else self.chat.whole(text))
        if reply.valid or self.chat:
            return reply
        tagged = reply_of(self.world, f"<think></think> <action>{text}</action>")
        return tagged if tagged.valid else reply

    def take(self, text: str) -> Step:
        """Play one reply. A malformed one costs a turn, as a policy's does, or ends the episode."""
        reply = self.parsed(text)
        if reply.valid:
            step = self.pool.step(SESSION, reply.action).result()
        else:
            step = Step(Observation(reply.error))
            if self.settings.bad_reply == "end":
                step = replace(step, done=True, reward=self.settings.malformed_reward)
        self.actions.append(reply.action if reply.valid else "")
        self.observations.append(step.observation.text)
        return step

    def back(self, turn: int) -> Rollback:
        """Roll the world back to where it was before `turn`, as a retry does. Raise `WorldError` if it can't be."""
        if not 0 <= turn <= len(self.actions):
            raise WorldError(f"turn {turn}: expected 0 to {len(self.actions)}, the turns that were played")
        actions, observations = self.actions[:turn], self.observations[: turn + 1]
        rollback = self.pool.rollback(SESSION, self.task, actions, observations).result()
        if rollback.diverged_at is not None:
            raise WorldError(f"turn {rollback.diverged_at} was another this time: this world does not play alike twice")
        self.actions, self.observations = actions, observations
        return rollback
