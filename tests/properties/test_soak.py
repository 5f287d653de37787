"""A thousand episodes over all environments while their workers are stopped, killed and fed garbage (slow: minutes)."""

import shutil

import pytest

from tests.benchmarks.soak import SETTINGS, soak

EPISODES, FAULTS = 200, 12


@pytest.mark.slow
@pytest.mark.parametrize("environment", SETTINGS)
def test_every_episode_is_accounted_for_and_nothing_is_left(environment, tmp_path):
    if environment == "scienceworld":
        pytest.importorskip("scienceworld", reason="the extra [scienceworld] is not installed")
        if shutil.which("java") is None:
            pytest.skip("no Java: apt-get install default-jre-headless")
    soaked = soak(environment, EPISODES, FAULTS, str(tmp_path))
    assert sum(soaked.statuses.values()) == soaked.episodes >= EPISODES
    assert soaked.unexplained == 0
    assert soaked.left == []
    assert sum(soaked.faults.values()) >= FAULTS / 2
    assert 0 < soaked.statuses["environment_error"] < soaked.episodes / 2 + 1, "the faults are seen, and the rest goes on"
    assert soaked.restarts >= soaked.faults["hang"] + soaked.faults["kill"] + soaked.faults["garbage"] - 2
    assert soaked.growth_mb is None or soaked.growth_mb < 30
    assert soaked.own_mb[1] - soaked.own_mb[0] < 30
