"""The doctor's round: every check in its order, each one's error as a finding, so that one fault does not hide the
next."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from r3l.config import Config
from r3l.config.machines import Machine
from r3l.engines.base import PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.environments.base import tools_of
from r3l.environments.kinds import make_world
from r3l.errors import R3LError
from r3l.pipeline.doctor import folder as of
from r3l.pipeline.doctor.findings import Finding, fails, guard, unasked, works
from r3l.pipeline.doctor.sampled import attempt, canary
from r3l.pipeline.making import ensure_policy
from r3l.pipeline.tools import Tools


def examine(config: Config, machine: Machine | None = None, sampling: bool = True) -> Iterator[Finding]:
    """Look over `config`'s starting policy, which is made or fetched where it is not there: a finding for each check.

    Args:
        machine: the preset's, where one was named.
        sampling: whether the model is loaded, and asked for a reply and a reflection.
    """
    try:
        snapshot = ensure_policy(config)
    except R3LError as error:
        yield fails("policy", str(error))
        return
    folder = Path(snapshot.model_path)
    yield works("policy", f"{config.policy.name}: {snapshot.path}, digest {snapshot.digest}")
    yield from guard("weights", lambda: of.weights(config, folder))
    yield from guard("context", lambda: of.context(config, folder))
    yield from guard("memory", lambda: of.memory(config, machine))
    yield from guard("gpu", lambda: of.gpu(config))
    try:
        tools = tools_of(make_world(config.environment))
    except R3LError as error:
        yield fails("environment", str(error))
        return
    try:
        chat = ChatFormat.load(folder, config.policy.thinking, tools)
    except R3LError as error:
        yield fails("template", str(error))
        yield from (unasked(name, "needs a template") for name in ("tokenizer", "thinking", "reply", "reflection"))
        return
    yield from guard("tokenizer", lambda: of.tokenizer(chat, folder))
    yield from guard("template", lambda: of.template(chat))
    yield from guard("thinking", lambda: of.thinking(chat))
    if sampling:
        yield from _sampled(config, snapshot, chat)


def _sampled(config: Config, snapshot: PolicySnapshot, chat: ChatFormat) -> Iterator[Finding]:
    with closing(Tools()) as tools:
        try:
            engine = tools.engine(config)
            engine.load_policy(snapshot)
        except R3LError as error:
            yield fails("engine", str(error))
            yield from (unasked(name, "needs an engine") for name in ("canary", "reply", "reflection"))
            return
        yield works("engine", f"{config.engine.kind} runs it, {engine.context_limit:,} tokens of context")
        yield from guard("canary", lambda: canary(config, snapshot, engine, chat))
        yield from guard("reply", lambda: attempt(config, engine, chat, tools.pool(config), snapshot.digest))
