"""What environments of others say, made fit to be stored and shown."""

from importlib import import_module
from typing import Any

from r3l import plugins
from r3l.config.environments.adapters import RangedSettings
from r3l.environments.base import Reply
from r3l.environments.outside import share_of, text_of
from r3l.environments.replies import after_thought, parse_tagged_reply
from r3l.errors import ConfigError
from r3l.system.visible import visible

EMPTY = "Invalid reply: it is empty. Expected an action."


def clean(text: object, limit: int) -> str:
    """Make a text of an environment fit to be shown: controls and direction marks are made visible, and what is beyond
    `limit` characters is left out of its middle. Raise `WorldError` where it is no text."""
    whole = visible(text_of(text, "observation").replace("\r\n", "\n")).strip()
    if len(whole) <= limit:
        return whole
    half = limit // 2
    return f"{whole[:half]}\n[{len(whole) - 2 * half} characters left out]\n{whole[-half:]}"


def parse_action(text: str, form: str) -> Reply:
    """Parse a reply. `form` tags: <think>...</think> <action>...</action>; text: all that follows a thought is the
    action."""
    if form == "tags":
        return parse_tagged_reply(text)
    action = after_thought(text).strip()
    return Reply(True, action) if action else Reply(False, "", EMPTY)


def share_of_range(reward: object, what: str, settings: RangedSettings) -> float:
    """Convert a reward to a share of the range that the settings name. Raise `WorldError` where it is beyond it."""
    bounds = "environment.lowest_reward to environment.highest_reward"
    return share_of(reward, f"{what}, of {bounds}", settings.lowest_reward, settings.highest_reward)


OWN = "r3l.environments."


def object_named(path: str, setting: str) -> Any:
    """Import what stands at ``module:name``.

    Raises:
        ConfigError: nothing does, or nobody allowed it to be imported; the message names the setting.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ConfigError(f"{setting}={path!r:.200}: expected module:name")
    refuse_unnamed(path, setting)
    try:
        loaded = import_module(module)
        found = getattr(loaded, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{setting}={path!r:.200}: {plugins.in_words(error, module)}") from error
    if not path.startswith(OWN):
        plugins.tell_loaded(path, loaded)
    return found


def refuse_unnamed(path: str, setting: str) -> None:
    """Raise `ConfigError` where a setting, of a stored run or of a form, names code that the user did not."""
    if not plugins.is_dotted(path) or path.startswith(OWN):
        return
    if path not in plugins.allowed_paths():
        raise ConfigError(plugins.not_named(setting, path))
    plugins.reach()
