"""Rewards that other packages give, through each adapter: what is no finite number in the declared range is refused
with its value and type. The packages themselves are not needed: stand-ins answer in their place."""

from types import SimpleNamespace

import numpy as np
import pytest

from r3l.config.environments.adapters import GymnasiumSettings, ToolsSettings, VerifiersSettings
from r3l.environments.adapters.gym import Gained, GymnasiumEnvironment
from r3l.environments.outside import number_of
from r3l.environments.tools.world import ToolEnvironment
from r3l.environments.verifiers.tasksets import TasksetEnvironment
from r3l.errors import WorldError

DISCRETE = SimpleNamespace(start=0, n=9)


def made(kind, settings, **attributes):
    """An environment of that kind without its package."""
    environment = object.__new__(kind)
    environment.settings = settings
    for name, value in attributes.items():
        setattr(environment, name, value)
    return environment


def by_gymnasium(reward, observation="o", done=True, action="3", **ranges):
    settings = GymnasiumSettings(env="x", **ranges)
    env = SimpleNamespace(step=lambda action: (observation, reward, done, False, {}), action_space=DISCRETE)
    spaces = SimpleNamespace(Text=str, Discrete=SimpleNamespace)
    played = made(GymnasiumEnvironment, settings, gymnasium=SimpleNamespace(spaces=spaces))
    return played.act({"env": env, "gained": Gained(settings)}, action)


def by_tools(reward, observation="o", done=True):
    tools = SimpleNamespace(score=lambda answer: reward, tools=list)
    return made(ToolEnvironment, ToolsSettings()).act(tools, '{"answer": "a"}')


def by_verifiers(reward, **ranges):
    trace = SimpleNamespace(reward=reward, stop_condition=None)
    return made(TasksetEnvironment, VerifiersSettings(**ranges)).scored(SimpleNamespace(ok=True, traces=[trace]))


ALL = [by_gymnasium, by_tools, by_verifiers]
RANGED = [by_gymnasium, by_verifiers]


@pytest.mark.parametrize("play", ALL)
@pytest.mark.parametrize(("reward", "got"), [
    (float("nan"), r"got nan \(float\)"), (float("inf"), r"got inf \(float\)"),
    (np.float32("-inf"), r"got np.float32\(-inf\) \(float32\)"), ("0.5", r"got '0.5' \(str\)"), (None, "got None"),
    ([0.5], r"got \[0.5\] \(list\)"), (1.25, r"got 1.25 \(float\)"), (-1.25, r"got -1.25 \(float\)"),
])  # fmt: skip
def test_a_reward_that_is_none_is_refused_with_value_and_type(play, reward, got):
    with pytest.raises(WorldError, match=got):
        play(reward)


@pytest.mark.parametrize("play", ALL)
@pytest.mark.parametrize("reward", [0.5, np.float32(0.5), 1.0000000000000002, 1, True])
def test_a_number_in_the_range_is_the_reward(play, reward):
    step = play(reward)
    assert (step.done, step.reward, step.success) == (True, min(float(reward), 1.0), float(reward) >= 1)
    assert type(step.reward) is float


@pytest.mark.parametrize("play", RANGED)
def test_a_range_is_declared_by_the_settings_and_named_where_it_is_left(play):
    assert play(3.0, lowest_reward=-1, highest_reward=7).reward == 0.5
    with pytest.raises(WorldError, match=r"environment\.lowest_reward to environment\.highest_reward: .*\[-1, 7\]"):
        play(8.0, lowest_reward=-1, highest_reward=7)


@pytest.mark.parametrize("observation", [7, b"x", ["o"]])
def test_an_observation_that_is_no_text_is_refused(observation):
    with pytest.raises(WorldError, match=r"text|observes"):
        by_gymnasium(0.5, observation)


def test_whether_it_is_over_is_true_or_false():
    assert by_gymnasium(0.5, done=np.bool_(True)).done is True
    with pytest.raises(WorldError, match=r"expected true or false, got 'False' \(str\)"):
        by_gymnasium(0.5, done="False")


@pytest.mark.parametrize("action", ["--3", "-", "+-3", "3-", "3.0", "1e0", "³", "9" * 5000, "", "٣٣٣", "0x3"])
def test_what_is_no_number_is_no_action_of_a_discrete_space(action):
    assert not by_gymnasium(0.5, action=action).accepted
    assert by_gymnasium(0.5, action=" +3 ").accepted


def test_bounds_may_be_open_and_still_no_infinity_is_a_number():
    assert number_of(-1e300, "reward", -np.inf, np.inf) == -1e300
    with pytest.raises(WorldError, match=r"got inf \(float\)"):
        number_of(np.inf, "reward", -np.inf, np.inf)
