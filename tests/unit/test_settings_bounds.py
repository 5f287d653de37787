"""Every number of every setting is one that the tables hold: it has bounds, and what lies outside is refused."""

from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args

import annotated_types as limits
import pytest
from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from r3l.config import compose
from r3l.config.complaints import SEVERAL
from r3l.config.environments.shared import EnvironmentSettings
from r3l.config.model import Config
from r3l.config.section import LARGEST, Section
from r3l.errors import ConfigError


def settings(section: type[Section], prefix: str = "", kind: str = "") -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield every setting: its name, the assignment that gives its section the kind that has it, and its field."""
    for name, field in section.model_fields.items():
        if name in SEVERAL:
            for member in SEVERAL[name].own:
                yield from settings(member, f"{name}.", f"{name}.kind={member.model_fields['kind'].default}")
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from settings(field.annotation, f"{name}.")
        else:
            yield prefix + name, kind, field


def is_number(annotation: Any) -> bool:
    types = {*(get_args(annotation) or (annotation,))} - {NoneType}
    return bool(types) and types <= {int, float}


NUMBERS = [(name, kind, field) for name, kind, field in settings(Config) if is_number(field.annotation)]
# Of every number; that each has bounds on both sides, which the others are beyond, is seen below.
WRONG = ["NaN", str(2**63), "Infinity", "-Infinity", str(-(2**63) - 1)]
OTHER_FORMS = ["1e999", "9" * 5000]  # of what an assignment says, whatever it is of


def test_every_number_has_bounds():
    assert {"seed", "iteration", "method.tau", "environment.highest_reward"} <= {name for name, _, _ in NUMBERS}
    for name, kind, field in NUMBERS:
        least = [getattr(one, "ge", getattr(one, "gt", None)) for one in field.metadata if isinstance(one, LOWER)]
        most = [getattr(one, "le", getattr(one, "lt", None)) for one in field.metadata if isinstance(one, UPPER)]
        assert least, f"{name} ({kind}) has no lower bound"
        assert most, f"{name} ({kind}) has no upper bound"
        assert -1e9 <= min(least) <= max(most) <= (LARGEST if name.endswith("seed") else 1e9), name


LOWER, UPPER = limits.Ge | limits.Gt, limits.Le | limits.Lt


@pytest.mark.parametrize("wrong", [*WRONG, *OTHER_FORMS], ids=lambda text: text[:20])
def test_no_number_outside_its_bounds_passes(wrong):
    for name, kind, _ in NUMBERS if wrong in WRONG[:2] else NUMBERS[::12]:
        with pytest.raises(ConfigError) as refused:
            compose(assignments=[*([kind] if kind else []), f"{name}={wrong}"])
        assert name in str(refused.value)
        assert len(str(refused.value)) < 1000


class Foreign(EnvironmentSettings):
    """A plug-in's settings, whose author gave no bounds."""

    size: int = Field(0, description="A size.")
    share: float = Field(0.0, description="A share.")


@pytest.mark.parametrize(
    "wrong",
    [float("nan"), float("inf"), float("-inf"), 2**63, -(2**63) - 1, 10**5000],
    ids=["nan", "inf", "-inf", "2**63", "-2**63-1", "10**5000"],
)
def test_a_setting_without_bounds_of_its_own_takes_no_such_number_either(wrong):
    given = {"size": wrong} if isinstance(wrong, int) else {"share": wrong}
    with pytest.raises(ValidationError, match=str(next(iter(given)))):
        Foreign.model_validate(given)
    with pytest.raises(ValidationError, match=r"options\.deep\.1\.n"):
        Config.model_validate({"environment": {"kind": "gymnasium", "options": {"deep": [1, {"n": wrong}]}}})


def test_a_number_that_python_writes_out_nowhere_is_refused_in_a_line():
    with pytest.raises(ConfigError, match="an integer of 16610 bits"):
        compose(seed=10**5000)


def test_the_largest_seed_is_taken():
    assert compose(assignments=[f"seed={LARGEST}"]).seed == LARGEST
    assert Foreign(size=LARGEST).size == LARGEST


@pytest.mark.parametrize(("given", "said"), [
    ("run=a b/c", "' ', '/'"),
    ("branch=ä!", "'ä', '!'"),
    ("run=-x", r"character 1 \('-'\)"),
    ("engine.gpus=0;1", "';'"),
    ("engine.gpus=,0", "character 1"),
    ("rollout.taks=3", "did you mean 'tasks'"),
])  # fmt: skip
def test_what_is_wrong_with_a_text_is_named(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose(assignments=["engine.kind=vllm_server", given])
