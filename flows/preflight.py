"""What can be known to be wrong before any work starts: each with the value and the way out. Nothing is written."""

from __future__ import annotations

from flows.policies import starting_policy
from flows.task_batch import enough
from r3l.config import Config
from r3l.engines.chat_format import ChatFormat
from r3l.environments import tasks_of
from r3l.errors import ConfigError
from r3l.store.stage import Store


def check(config: Config, training: bool = True) -> Store:
    """The opened store, if the run can start. An evaluation needs no training tasks: its benchmark may have none.

    Raises:
        StoreError: the store is not writable.
        ConfigError: no policy, too few tasks, a limit that leaves no room for a reply.
        ChatFormatError: no tokenizer, or a chat template that can't be extended turn by turn.
        WorldError: the environment's data or packages are missing.
    """
    store = Store.open(config.store.root)
    policy = starting_policy(config)
    ChatFormat.load(policy.path, config.policy.thinking)
    if config.environment.reply_tokens >= config.policy.context_tokens:
        raise ConfigError(f"environment.reply_tokens={config.environment.reply_tokens} leaves no room in "
                          f"policy.context_tokens={config.policy.context_tokens}; make the reply shorter or the context longer")
    if training:
        enough(config, len(tasks_of(config.environment, config.environment.split)))
    return store
