"""A thousand episodes over all environments while their workers are stopped, killed and fed garbage (slow: minutes)."""

import shutil

import pytest

from tests.benchmarks.soak import SETTINGS, grown, soak

EPISODES, FAULTS = 200, 12


def test_a_leak_is_told_from_a_late_start():
    late = [
        *[(1, 70.0)] * 5,
        *[(2, size) for size in (120.0, 193.0, 194.0, 194.0, 135.0, 195.0)],
        (1, 70.0),
        (2, 194.0),
        (2, 195.0),
    ]
    growth = grown(late)
    assert growth is not None
    assert growth < 3
    assert grown([(1, 70.0 + 5 * turn) for turn in range(16)]) == 55
    assert grown(late[:7]) is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
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
    assert 0 < soaked.statuses["environment_error"] < soaked.episodes / 2 + 1, (
        "the faults are seen, and the rest goes on"
    )
    assert soaked.restarts >= soaked.faults["hang"] + soaked.faults["kill"] + soaked.faults["garbage"] - 2
    assert soaked.growth_mb is not None
    assert soaked.growth_mb < 30
    assert soaked.own_mb[1] - soaked.own_mb[0] < 30
