"""How stages are run: what their futures are, and that a signal ends the wait for one."""

import os
import signal
import threading
from concurrent.futures import Future

import pytest

from r3l.pipeline.runner import Runner, Threads, waited_for


@pytest.mark.parametrize("runner", [Runner(), Threads()], ids=["plain", "threads"])
def test_futures_among_a_stage_s_arguments_are_waited_for(runner):
    def summed(numbers: list[int], more: int) -> int:
        return sum(numbers) + more

    assert runner.call(summed, [1, 2], 3) == 6
    first = runner.submit(summed, [1, 2], 3)
    assert waited_for(first).result() == 6
    assert runner.submit(summed, [first, Runner().submit(int, 4)], first).result() == 16


def test_a_stage_that_fails_is_waited_for_as_one_that_does_not():
    failed = Threads().submit(int, "four")
    with pytest.raises(ValueError, match="four"):
        waited_for(failed).result()


def test_a_signal_is_heard_that_does_not_wake_the_main_thread():
    """As one that comes between its last instruction and its wait: another thread takes it, and sets the flag only."""
    never: Future[None] = Future()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    def send() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.kill(os.getpid(), signal.SIGINT)

    try:
        timer = threading.Timer(0.2, send)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            waited_for(never)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, before)
        timer.join()
