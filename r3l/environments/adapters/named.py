"""Functions and classes that settings name as ``module:name``: imported only where the user named them."""

from importlib import import_module
from typing import Any

from r3l import plugins
from r3l.errors import ConfigError

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
