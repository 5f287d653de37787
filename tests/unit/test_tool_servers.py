"""Tools of MCP servers that really run, over pipes and over HTTP."""

import asyncio
import json
import subprocess
import time
from dataclasses import replace

import pytest

pytest.importorskip("mcp")

from r3l import plugins
from r3l.config.environments.adapters import ToolsSettings
from r3l.environments.base import tools_of
from r3l.environments.kinds import make_world
from r3l.environments.tools.servers import Servers
from r3l.environments.workers.pool import WorldPool
from r3l.errors import ServerAway, WorldError
from r3l.exploration.sample import sample
from r3l.records import Status
from r3l.system.ports import free_port
from tests.support.fakes import explorer
from tests.support.mcp_desk import SHOP, Desk

pytestmark = pytest.mark.slow  # each session starts a process that imports the package
DESK = "tests.support.mcp_desk:Desk"


def call(name: str, **arguments) -> str:
    return json.dumps({"calls": [{"name": name, "arguments": arguments}]})


@pytest.fixture
def settings(monkeypatch) -> ToolsSettings:
    monkeypatch.setenv(plugins.NAMED, DESK)
    return ToolsSettings(toolset=DESK, train_tasks=2, heldout_tasks=1, workers=1, max_turns=4)


def test_a_servers_tools_are_shown_called_scored_and_rolled_back_by_replay(settings):
    world = make_world(settings)
    assert [schema["function"]["name"] for schema in world.schemas] == ["open_till", "pay", "leave"]
    assert tools_of(world)[1]["function"]["description"] == "Put coins into the till."
    task, other = world.tasks("train")
    with WorldPool(settings, workers=1) as pool:
        seen = [pool.start("base", task).result(60).text]
        assert seen[0] == f"Pay three coins. till {json.loads(task.payload)['till']} is empty"
        pool.start("other", other).result(60)
        pays = [call("pay", coins=2), call("pay", coins=1)]
        steps = [pool.step("base", pay).result(60) for pay in pays]
        assert [step.observation.text for step in steps] == ["2 in the till", "3 in the till"]
        assert [step.standing for step in steps] == [pytest.approx(2 / 3), 1.0]
        assert pool.step("other", call("pay", coins=1)).result(60).observation.text == "1 in the till"  # of its own
        refused = pool.step("other", call("pay", coins="many")).result(60)
        assert not refused.accepted
        assert "coins" in refused.observation.text
        back = pool.rollback("retry", task, pays[:1], [*seen, "2 in the till"]).result(60)
        assert back.diverged_at is None
        assert pool.step("retry", pays[1]).result(60).observation.text == "3 in the till"
        assert pool.step("retry", json.dumps({"answer": "done"})).result(60).success
        assert pool.counts()["replays"] == 1


def test_a_server_that_dies_is_one_environment_error(settings):
    with WorldPool(settings, workers=1) as pool:
        task = make_world(settings).tasks("train")[0]

        def script(request_id: str, prompt: str) -> str:
            return json.dumps({"name": "leave", "arguments": {}})

        exploring = replace(explorer(script, pool, max_turns=3), world=make_world(settings))
        dead = asyncio.run(sample(exploring, task, 0))
        assert dead.trajectory.status == Status.ENVIRONMENT_ERROR
        assert f"MCP server {SHOP}, call of leave: Connection closed" in dead.trajectory.reason
        assert pool.start("next", task).result(60).text.endswith("is empty")
        assert pool.counts()["restarts"] == 0


def test_a_server_at_an_address_and_one_that_is_not_there():
    port = free_port()
    address = f"http://127.0.0.1:{port}/mcp"
    with pytest.raises(ServerAway, match=r"connect: .*; is it running there\?"):
        Servers([address], 20)
    with pytest.raises(WorldError, match=r"/nowhere/program, connect: .*No such file"):
        Servers(["/nowhere/program"], 20)
    served = subprocess.Popen([*SHOP.split(), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        desk = Desk()
        desk.servers = answering(address)
        assert desk.start({"till": "a"}) == "Pay three coins. till a is empty"
        assert desk.servers.call("pay", {"coins": 3}) == ("3 in the till", True)
        assert desk.score("") == 1.0
        with pytest.raises(WorldError, match=f"MCP server {address}, call of leave"):
            desk.servers.call("leave", {})
    finally:
        served.kill()
        served.wait()


def answering(address: str) -> Servers:
    until = time.monotonic() + 60
    while True:
        try:
            return Servers([address], 20)
        except ServerAway:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
