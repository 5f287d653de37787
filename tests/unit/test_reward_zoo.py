"""Ten worlds with a planted reward bug, each told by an alarm on the run's tables before its policy has got worse."""

from pathlib import Path

import pytest

from r3l.store.catalog import connect
from r3l.store.stage import Store
from tests.support.reward_zoo import BUGS, HEALTHY, course
from tests.support.store_iteration import commit_evaluation, commit_stage

pytestmark = pytest.mark.slow
ITERATIONS, EPISODES = 4, 40
REWARD_ALARMS = ("held-out gap", "paid failures", "unlike pay")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, int], list[float]]]:
    """Of each run, the iteration in which each alarm of the reward rang first, and its held-out success."""
    store = Store.open(str(tmp_path_factory.mktemp("zoo")))
    curves = {}
    for run in (*HEALTHY, *BUGS):
        curves[run] = []
        for iteration, (tables, solved) in enumerate(course(run, ITERATIONS, EPISODES)):
            for stage, its in tables.items():
                commit_stage(store, stage, its, [], run, iteration)
            commit_evaluation(store, iteration, 0, "lamps/heldout", EPISODES, solved, run)
            curves[run].append(solved / EPISODES)
    asked = f"SELECT run, alarm, min(iteration) FROM lines.alarms WHERE alarm IN {REWARD_ALARMS} GROUP BY ALL"
    with connect(store) as connection:
        rung = connection.execute(asked).fetchall()
    return {run: ({alarm: at for name, alarm, at in rung if name == run}, curves[run]) for run in curves}


@pytest.mark.parametrize("bug", sorted({*BUGS} - {"repeat"}))
def test_a_reward_bug_is_told_within_four_iterations(zoo, bug):
    assert zoo[bug][0]


def test_the_bug_that_is_not_told_does_no_harm(zoo):
    """Pressing twice the same is what solves a task: who is paid for the last action repeated learns to solve it."""
    rung, curve = zoo["repeat"]
    assert rung == {}
    assert curve[-1] > 0.8


def test_most_bugs_are_learned(zoo):
    """Else nothing was at stake: most policies end far below that of the healthy world."""
    healthy = zoo["healthy"][1][-1]
    assert healthy > 0.8
    assert sum(zoo[bug][1][-1] < healthy - 0.3 for bug in BUGS) >= 7


@pytest.mark.parametrize("run", HEALTHY)
def test_no_alarm_of_the_reward_rings_in_a_healthy_world(zoo, run):
    assert zoo[run][0] == {}


def test_none_rings_on_the_run_that_ships():
    sample = Path(__file__).parents[2] / "data" / "sample_run"
    with connect(Store.open(str(sample))) as connection:
        asked = f"SELECT count(*) FROM lines.alarm_figures WHERE alarm IN {REWARD_ALARMS}"
        assert connection.execute(asked).fetchone() > (2,)
        assert connection.execute(f"SELECT alarm FROM lines.alarms WHERE alarm IN {REWARD_ALARMS}").fetchall() == []
