"""Work on another pool, with the pool scripted: what is joined, sent again, given up, cancelled."""

import json
import signal
import threading
import time
import uuid
from types import SimpleNamespace

import httpx
import pytest
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelled, Completed, Crashed, Failed, Running, Scheduled

from flows import iterate
from flows.cli.terminal import run_iteration
from flows.placement import remote_jobs
from flows.placement.heartbeat import Listener, Superseded, beating
from flows.placement.remote_jobs import Errand, RemoteJobError, run_remote
from r3l.config.sections import PlacementSettings
from r3l.errors import ConfigError, Interrupted
from r3l.store.files.local import LocalFiles, read_object
from tests.flows.small import small_config

SETTINGS = PlacementSettings(attempts=2, silent_s=1, heartbeat_s=0.1)


class Pool:
    """`runs[k]` scripts try k: the states that are seen one after another, the first when it is asked for; the last one
    stays. The job's result is there from the state on that is the number `leaves`."""

    def __init__(self, monkeypatch, files, *runs, leaves=None):
        self.runs, self.leaves, self.asked, self.cancelled, self.seen = runs, leaves, [], [], {}
        self.files, self.beats = files, 0
        monkeypatch.setattr(remote_jobs, "POLL_S", 0.01)
        monkeypatch.setattr(remote_jobs, "submit", self.submit)
        monkeypatch.setattr(remote_jobs, "state_of", self.state_of)
        monkeypatch.setattr(remote_jobs, "give_up", lambda run, reason: Crashed(message=reason))
        monkeypatch.setattr(remote_jobs, "cancel", lambda run: self.cancelled.append(run.id))

    def submit(self, errand, attempt):
        self.asked.append(attempt)
        return SimpleNamespace(id=attempt, name=f"run-{attempt}", state=self.runs[attempt][0])

    def state_of(self, run):
        self.seen[run.id] = min(self.seen.get(run.id, 0) + 1, len(self.runs[run.id]) - 1)
        return self.runs[run.id][self.seen[run.id]]

    def finished(self):
        done = self.leaves is not None and self.asked and self.asked[-1] == self.leaves and self.state_is_last()
        return "made" if done else None

    def state_is_last(self):
        run = self.asked[-1]
        return self.seen.get(run, 0) == len(self.runs[run]) - 1


def play(pool, files, stopped=None, on_counts=lambda counts: None):
    errand = Errand("r3l-update/update", "key", {}, "beat.json")
    return run_remote(errand, files, SETTINGS, pool.finished, stopped or threading.Event(), on_counts)


@pytest.fixture
def files(tmp_path):
    return LocalFiles(tmp_path)


def test_a_job_that_is_done_is_not_asked_for(monkeypatch, files):
    pool = Pool(monkeypatch, files)
    monkeypatch.setattr(pool, "finished", lambda: "made before")
    assert (play(pool, files), pool.asked) == ("made before", [])


def test_it_waits_for_a_worker_and_for_the_result(monkeypatch, files):
    pool = Pool(monkeypatch, files, [Scheduled(), Scheduled(), Running(), Completed()], leaves=0)
    assert (play(pool, files), pool.asked, pool.cancelled) == ("made", [0], [])


def test_a_crashed_host_s_job_is_sent_again_and_a_lost_one_counts_as_crashed(monkeypatch, files):
    pool = Pool(
        monkeypatch, files, [Scheduled(), Running(), Crashed()], [Scheduled(), Running(), Completed()], leaves=1
    )
    assert (play(pool, files), pool.asked) == ("made", [0, 1])
    silent = Pool(monkeypatch, files, [Running(), Running()], [Running(), Completed()], leaves=1)
    assert (play(silent, files), silent.asked) == ("made", [0, 1])


def test_hosts_are_lost_so_often_and_no_more(monkeypatch, files):
    pool = Pool(
        monkeypatch, files, [Running(), Crashed()], [Running(), Crashed(message="gone")], [Running(), Completed()],
        leaves=2,
    )  # fmt: skip
    with pytest.raises(RemoteJobError, match=r"lost 2 times, last in flow run run-1 \(gone\)"):
        play(pool, files)


def test_earlier_tries_that_ended_are_passed_by_and_one_that_runs_is_joined(monkeypatch, files):
    pool = Pool(
        monkeypatch, files, [Failed()], [Cancelled()], [Crashed()], [Completed()], [Running(), Completed()], leaves=4
    )
    assert (play(pool, files), pool.asked) == ("made", [0, 1, 2, 3, 4])


@pytest.mark.parametrize(("last", "said"), [
    (Failed(message="no rows"), "Failed (no rows)"),
    (Cancelled(), "Cancelled"),
    (Completed(), "left no result in the store"),
])  # fmt: skip
def test_what_fails_is_said_and_not_tried_again(monkeypatch, files, last, said):
    pool = Pool(monkeypatch, files, [Running(), last], [Running(), Completed()], leaves=1)
    with pytest.raises(RemoteJobError) as error:
        play(pool, files)
    assert said in str(error.value)
    assert pool.asked == [0]


def test_the_end_of_the_caller_cancels_it(monkeypatch, files):
    pool, stopped = Pool(monkeypatch, files, [Scheduled(), Running()]), threading.Event()
    threading.Timer(0.1, stopped.set).start()
    with pytest.raises(Interrupted, match="was cancelled"):
        play(pool, files, stopped)
    assert pool.cancelled == [0]

    def interrupted(counts):
        raise KeyboardInterrupt

    pool = Pool(monkeypatch, files, [Scheduled(), Running()])
    with pytest.raises(KeyboardInterrupt):
        play(pool, files, on_counts=interrupted)
    assert pool.cancelled == [0]


def test_a_server_that_does_not_answer_is_waited_for_as_long_as_the_heart_beats(monkeypatch, files):
    pool = Pool(monkeypatch, files, [Running(), None, None, None, Completed()], leaves=0)
    assert play(pool, files) == "made"


def test_beats_are_heard_once_by_their_changes(files):
    counts = {"base": {"turns": 3.0}}
    listener = Listener(files, "beat.json", 0)
    with beating(files, "beat.json", 0, 60, lambda: counts) as beat:
        assert listener.listen() == {"base": {"turns": 3.0}}
        assert listener.listen() == {}
        counts = {"base": {"turns": 5.0}, "updates": {"tokens": 7.0}}
        beat.write()
        assert listener.listen() == {"base": {"turns": 2.0}, "updates": {"tokens": 7.0}}
    assert Listener(files, "beat.json", 1).listen() == {}  # of another try


def test_a_try_that_was_given_up_puts_nothing_in_its_place(files):
    with beating(files, "beat.json", 0, 60, dict) as first:
        with beating(files, "beat.json", 1, 60, dict):
            with pytest.raises(Superseded, match="a later try"):
                first.check()
        assert read_object(files, "beat.json")["attempt"] == 1


def test_a_server_that_is_away_is_asked_again_and_a_refusal_is_not(monkeypatch):
    monkeypatch.setattr(remote_jobs, "PAUSE_S", 0.01)
    request = httpx.Request("GET", "http://server")
    answers = [httpx.ConnectError("refused"), refusal(503, request), "there"]

    def ask():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert remote_jobs.patiently(ask) == "there"
    answers.append(refusal(404, request))
    with pytest.raises(PrefectHTTPStatusError):
        remote_jobs.patiently(ask)


def refusal(status, request):
    return PrefectHTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


def test_a_torn_beat_is_silence(files):
    files.put("beat.json", json.dumps({"attempt": 0}).encode()[:-3])
    assert Listener(files, "beat.json", 0).listen() == {}


@pytest.fixture
def errand(prefect_server):
    """Work for a deployment that is registered, and that no worker looks after."""
    from prefect.client.orchestration import get_client

    from flows.placement.remote_update import update

    with get_client(sync_client=True) as client:
        client.create_deployment(client.create_flow(update), "update", enforce_parameter_schema=False)
    return Errand("r3l-update/update", str(uuid.uuid4()), {"store": "s3://bucket", "job": "job.json"}, "beat.json")


def test_prefect_gives_the_same_run_for_the_same_work_and_takes_the_states(errand):
    first, again = remote_jobs.submit(errand, 0), remote_jobs.submit(errand, 0)
    assert first.id == again.id
    assert remote_jobs.submit(errand, 1).id != first.id
    assert remote_jobs.state_of(first).is_scheduled()
    remote_jobs.cancel(first)
    assert remote_jobs.state_of(first).is_cancelled()
    assert remote_jobs.submit(errand, 0).state.is_final()
    second = remote_jobs.submit(errand, 1)
    assert remote_jobs.give_up(second, "no heartbeat").message == "no heartbeat"
    assert remote_jobs.state_of(second).is_crashed()


def test_a_placement_without_its_deployment_is_refused_before_anything_is_sampled(errand):
    remote_jobs.check_placement(PlacementSettings(update_deployment="r3l-update/update"))
    with pytest.raises(ConfigError, match="no deployment 'r3l-update/none'"):
        remote_jobs.check_placement(PlacementSettings(update_deployment="r3l-update/none"))
    with pytest.raises(ConfigError, match="no deployment 'r3l-shard/shard'"):
        remote_jobs.check_placement(PlacementSettings(shards="workers"))
    remote_jobs.check_placement(PlacementSettings())


@pytest.mark.usefixtures("errand")
def test_so_it_is_from_the_terminal_before_there_is_a_flow_run(monkeypatch, tmp_path):
    monkeypatch.setattr(iterate, "with_watcher", lambda tally: pytest.fail("the flow was begun"))
    config = small_config(tmp_path, "placement.update_deployment=r3l-update/none")
    with pytest.raises(ConfigError, match="no deployment 'r3l-update/none'"):
        run_iteration(config, quiet=True)
    monkeypatch.setattr("flows.placement.remote_jobs.get_client", unreachable)
    with pytest.raises(ConfigError, match="can't be asked for 'r3l-update/none'"):
        run_iteration(config, quiet=True)


def unreachable(**_):
    raise httpx.ConnectError("no route to host")


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"])
def begun(request):
    """How a shell begins a process: one in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("begun")
def test_a_try_that_was_given_up_ends_by_itself(files):
    """As its host's network comes back it finds a later try's beat."""

    def outlive() -> None:
        with beating(files, "beat.json", 0, 0.05, dict):
            files.put("beat.json", json.dumps({"attempt": 1, "number": 1, "counts": {}}).encode())
            time.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        outlive()
