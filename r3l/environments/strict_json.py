"""JSON that a model wrote, as every reader of it has it: what only Python reads is refused."""

import json
import math
from typing import Any


class NotJson(ValueError):
    """What is wrong with it, in words that the policy is told."""


def value(text: str) -> Any:
    """Parse the JSON value of a text. Raise `NotJson`, also for what other readers of JSON refuse."""
    try:
        parsed_value = json.loads(text, parse_constant=refuse, parse_float=finite)
        json.dumps(parsed_value, ensure_ascii=False).encode()
        return parsed_value
    except UnicodeEncodeError as error:
        raise NotJson("not valid JSON: it holds half of a surrogate pair, which is no character") from error
    except json.JSONDecodeError as error:
        raise NotJson(f"not valid JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise NotJson("not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise NotJson(f"not valid JSON: {error}") from error


def finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else refuse(f"{digits:.40}")


def refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")
