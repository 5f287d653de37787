"""Incidents apart from the attempts: a repeated engine call, a worker that died, the canary. Each becomes a row of
`events`."""

import threading

from r3l.records import Event


class Incidents:
    """Noted from any thread; the next sampling stage that is committed takes them into its table."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._noted: list[tuple[str, str, str, str]] = []

    def note(self, event: str, subject_id: str, reason: str, detail: str = "") -> None:
        """Keep one for the next stage. `event` is engine_retry, engine_restarted, worker_restarted or canary."""
        with self._guard:
            self._noted.append((event, subject_id, reason, detail))

    def taken(self, iteration: int, stage: str) -> list[Event]:
        """Take out all that were noted since the last call, as events that `stage` reports, in the order of their
        subjects."""
        with self._guard:
            notes, self._noted = self._noted, []
        return [
            Event(iteration, stage, subject, event, reason, detail) for event, subject, reason, detail in sorted(notes)
        ]
