"""A verifiers environment in this process: loaded, and refused where it can't be played turn by turn."""

import signal
from typing import Any

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments.adapters.texts import import_package
from r3l.errors import WorldError


def load(settings: VerifiersSettings) -> Any:
    """Load the `MultiTurnEnv` that the settings name.

    Raises:
        WorldError: the package or the environment is not there, its loading failed, or it is of a kind that no policy
            outside of it can play turn by turn.
    """
    verifiers = import_package("verifiers", "verifiers")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        env = verifiers.load_environment(settings.env, **settings.options)
    except AttributeError as error:
        raise WorldError(f"verifiers has no load_environment here ({error}): pip install 'r3l[verifiers]'") from error
    except Exception as error:  # whatever an environment's own code raises
        raise WorldError(f"verifiers can't load {settings.env}: {type(error).__name__}: {error}") from error
    finally:  # loading an environment sets handlers, and ours decide how a worker ends
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if not isinstance(env, verifiers.MultiTurnEnv):
        raise WorldError(
            f"{settings.env} is {type(env).__name__}: expected a MultiTurnEnv (SingleTurnEnv, ToolEnv and so on); for "
            "a group of environments, name one of them"
        )
    if env.rubric.has_group_rewards:
        raise WorldError(
            f"{settings.env} scores attempts against each other: expected a rubric that scores each one on its own"
        )
    return env


def tools_in(env: Any) -> list[dict[str, Any]]:
    """List its tools as chat templates show them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in env.tool_defs or []
    ]
