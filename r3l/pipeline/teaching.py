"""Who guides the retries, where it is not the policy itself: whether there is such a guide, and the teacher's
engine."""

import os
from pathlib import Path

from r3l.config import Config
from r3l.config.engines import TransformersLocalSettings
from r3l.config.methods.shared import GuidedSettings
from r3l.engines import make_engine
from r3l.engines.chat_format import ChatFormat
from r3l.engines.teacher import PolicyTeacher, Teacher
from r3l.environments.base import Hinting
from r3l.environments.kinds import has_oracle, kinds_with, make_world
from r3l.errors import ConfigError
from r3l.methods import plan
from r3l.pipeline.policies import on_a_server, starting_policy, teacher_policy

KEY = "R3L_TEACHER_KEY"


def make_teacher(config: Config) -> Teacher:
    """Make the teacher: a policy's folder runs in this process, beside the engine of the policy that it teaches.

    Raises:
        ConfigError: its folder is missing. EngineError: the policy can't be loaded.
    """
    assert isinstance(config.method, GuidedSettings)
    if on_a_server(config.method):
        from r3l.engines.served_teacher import ServedTeacher

        return ServedTeacher(config.method.teacher, config.method.teacher_model, os.environ.get(KEY, ""))
    snapshot = teacher_policy(config)
    policy = config.policy.model_copy(update={"path": snapshot.path, "name": Path(snapshot.path).name})
    engine = make_engine(TransformersLocalSettings(), policy)
    engine.load_policy(snapshot)
    folder = Path(snapshot.model_path)
    chat = ChatFormat.load(folder, config.policy.thinking)
    learner = Path(starting_policy(config).model_path)
    return PolicyTeacher(engine, chat, snapshot.digest, same_tokens(folder, learner))


def same_tokens(one: Path, other: Path) -> bool:
    """Tell whether two policies have one tokenizer."""
    files = [folder / "tokenizer.json" for folder in (one, other)]
    return all(file.is_file() for file in files) and files[0].read_bytes() == files[1].read_bytes()


def check_guidance(config: Config) -> None:
    """Raise `ConfigError` where the guidance or the pivot that the method asks for can't be had here,
    `ChatFormatError` where the teacher's template is none."""
    wanted, kind = plan(config.method, config.rollout.group_size), config.environment.kind
    source, of_oracle = wanted.source, {"guidance": wanted.source, "pivot": wanted.pivot}
    asked = " and ".join(f"method.{name}=oracle" for name, choice in of_oracle.items() if choice == "oracle")
    if asked and not has_oracle(config.environment):
        raise ConfigError(
            f"{asked}: environment {kind} has no oracle; those that have one: {kinds_with('oracle_pivot')}"
        )
    if source == "hint" and not isinstance(make_world(config.environment), Hinting):
        raise ConfigError(
            f"method.guidance=hint: environment {kind} has no hints; {kinds_with('hints')} have, and a world of "
            "your own may (`hints`, r3l/environments/base.py)"
        )
    if source == "teacher" and isinstance(config.method, GuidedSettings) and not on_a_server(config.method):
        ChatFormat.load(teacher_policy(config).model_path, config.policy.thinking, light=True)
