"""Tools of MCP servers, by the official client: each episode has sessions of its own with them.

A server is an ``http(s)://`` address, or a command that speaks over its standard pipes and is started for each session.
The client is asynchronous, and its sessions are opened and closed in one task: they live in a loop of a thread.
"""

import asyncio
import shlex
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any, NoReturn, TypeVar

from r3l.errors import ServerAway, WorldError
from r3l.system.packages import import_package

T = TypeVar("T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process in which all sessions live."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="r3l-mcp", daemon=True).start()
    return made


class Server:
    """One session with one server.

    Raises:
        ServerAway: nothing answers at an address.
        WorldError: a command did not start, the server died, or it answers with an error of the protocol.
    """

    def __init__(self, place: str, patience_s: float) -> None:
        self.place, self.patience_s = place, patience_s
        self.opened: Future[Any] = Future()
        self.ending = asyncio.Event()
        self.living = asyncio.run_coroutine_threadsafe(self.live(), loop())
        try:
            self.client = self.opened.result(patience_s)
        except BaseException as error:  # noqa: BLE001 - of the command, the network or the protocol
            self.close()
            self.blame("connect", error)

    async def live(self) -> None:
        try:
            async with import_package("mcp", "mcp").Client(
                self.target(), read_timeout_seconds=self.patience_s
            ) as client:
                self.opened.set_result(client)
                await self.ending.wait()
        except BaseException as error:  # noqa: BLE001 - of the thread of whoever waits; later ones are of a closed session
            if not self.opened.done():
                self.opened.set_exception(error)

    def target(self) -> Any:
        if self.place.startswith(("http://", "https://")):
            return self.place
        command, *words = shlex.split(self.place)
        return import_package("mcp", "mcp").StdioServerParameters(command=command, args=words)

    def asked(self, what: str, question: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(question, loop()).result(self.patience_s)
        except Exception as error:  # noqa: BLE001 - of its protocol, its pipes or its time
            self.blame(what, error)

    def blame(self, what: str, error: BaseException) -> NoReturn:
        while isinstance(error, BaseExceptionGroup):  # of its task groups, around the one that happened
            error = error.exceptions[0]
        away = what == "connect" and "://" in self.place
        kind = ServerAway if away else WorldError
        said = str(error) or type(error).__name__
        raise kind(f"MCP server {self.place}, {what}: {said}{'; is it running there?' if away else ''}") from error

    def tools(self) -> list[dict[str, Any]]:
        """List its tools as chat templates show them."""
        listed = self.asked("list of tools", self.client.list_tools()).tools
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description or tool.title or tool.name,
                    "parameters": tool.input_schema,
                },
            }
            for tool in listed
        ]

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return what a call returns as text, and whether it was a call that the tool could take."""
        result = self.asked(f"call of {name}", self.client.call_tool(name, arguments))
        text = "\n".join(getattr(block, "text", f"({block.type})") for block in result.content)
        return (f"Error: {text}", False) if result.is_error else (text, True)

    def close(self) -> None:
        loop().call_soon_threadsafe(self.ending.set)


class Servers:
    """The sessions of an episode with all servers of its toolset. They keep a state that no copy reaches."""

    def __init__(self, places: Sequence[str], patience_s: float) -> None:
        self.servers: list[Server] = []
        self.of_tool: dict[str, Server] = {}
        try:
            for place in places:
                self.servers.append(Server(place, patience_s))
            self.schemas = [schema for server in self.servers for schema in self.named(server)]
        except BaseException:
            self.close()
            raise

    def named(self, server: Server) -> list[dict[str, Any]]:
        schemas = server.tools()
        self.of_tool |= {schema["function"]["name"]: server for schema in schemas}
        return schemas

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        return self.of_tool[name].call(name, arguments)

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("what an MCP server keeps can't be copied")
