"""vLLM servers that this process starts, one per GPU of `engine.gpus`, puts to sleep, starts again when they die, and
ends."""

import asyncio
import secrets
import tempfile
from pathlib import Path

import httpx

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import Note, PolicySnapshot
from r3l.engines.vllm.own_process import OwnProcess, interpreter
from r3l.engines.vllm.routes import VllmRoutes
from r3l.engines.vllm.server import VllmServer
from r3l.errors import EngineError

LOOK_S = 0.2


class OwnServers(VllmServer):
    """They start with the first policy that is loaded.

    Raises:
        EngineError: there is no vLLM to start.
    """

    def __init__(self, settings: VllmServerSettings, policy: PolicySettings) -> None:
        interpreter()
        key = secrets.token_hex(24)
        self.processes = [OwnProcess(settings, policy, gpu, key) for gpu in settings.gpus.split(",")]
        super().__init__(settings.model_copy(update={"urls": ",".join(one.url for one in self.processes)}), policy, key)
        self.note: Note = lambda *_: None
        self.folder: Path | None = None
        self._model = ""
        self._minders: list[asyncio.Future[None]] = []

    def attach(self, folder: Path, note: Note) -> None:
        """Set where their logs go from the next start on, and who hears of a restart."""
        self.folder, self.note = folder, note

    def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Load the policy. Raise `EngineError` if a server does not start; the message ends with what it said last."""
        self._submit(self._start(snapshot.model_path)).result()
        super().load_policy(snapshot)

    def close(self) -> None:
        super().close()
        for process in self.processes:
            process.stop()

    def wakes_at_end(self) -> bool:
        return False  # they end

    async def _end(self) -> None:
        for minder in self._minders:
            minder.cancel()
        await asyncio.gather(*self._minders, return_exceptions=True)
        await super()._end()

    async def _start(self, model: str) -> None:
        """Start those that don't run, and wait until each answers."""
        self._model, self.folder = model, self.folder or Path(tempfile.mkdtemp(prefix="r3l-vllm-"))
        for process, routes in zip(self.processes, self.fleet.servers, strict=True):
            process.folder, process.deaths = self.folder, 0
            if not process.alive:
                process.clear_away()
                self._spawn(process, routes)
        await asyncio.gather(*[self._answers(process) for process in self.processes])
        if not self._minders:
            pairs = zip(self.processes, self.fleet.servers, strict=True)
            self._minders = [asyncio.ensure_future(self._mind(process, routes)) for process, routes in pairs]

    def _spawn(self, process: OwnProcess, routes: VllmRoutes) -> None:
        process.start(self._model)
        routes.url, routes.expected, routes.asleep, routes.adapter = process.url, process.name, 0, ""

    async def _answers(self, process: OwnProcess) -> None:
        """Wait until the server answers by its own name."""
        clock = asyncio.get_running_loop().time
        end = clock() + self.settings.start_s
        while not await self._is_there(process):
            will_restart = process.answered and not self.fleet.asleep and process.deaths <= self.settings.restarts
            if not process.alive and not will_restart:
                raise EngineError(f"vLLM did not start: {process.last_words()}; its log is {process.log}")
            if clock() > end:
                raise EngineError(
                    f"vLLM did not answer within engine.start_s={self.settings.start_s:g} s: "
                    f"{process.last_words()}; its log is {process.log}"
                )
            await asyncio.sleep(LOOK_S)
        process.answered = True

    async def _is_there(self, process: OwnProcess) -> bool:
        try:
            answer = await self.client.request("GET", f"{process.url}/v1/models", timeout=5)
            return process.alive and process.name in {model["id"] for model in answer.json()["data"]}
        except (httpx.TransportError, ValueError, KeyError, TypeError):
            return False

    async def _mind(self, process: OwnProcess, routes: VllmRoutes) -> None:
        """Start it again each time that it has died; not while it should sleep, since an update has its GPU then."""
        while True:
            await asyncio.sleep(LOOK_S)
            if process.alive or self.fleet.asleep or process.deaths > self.settings.restarts:
                continue
            process.clear_away()
            process.deaths += 1
            last_words = process.last_words()
            self.fleet.lose(routes)
            if process.deaths > self.settings.restarts:
                self.fleet.give_up(
                    routes, f"vLLM died {process.deaths} times, of {last_words}; its log is {process.log}"
                )
            else:
                self.note("engine_restarted", process.url, f"vLLM on GPU {process.gpu} died", last_words)
                self._spawn(process, routes)
