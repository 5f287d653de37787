"""The policy's seat in an episode of verifiers 0.4: its program, and the model that this program asks.

There an episode is a program that runs from its start to its end and asks a model (a harness). This one runs in the
worker process and calls the task's tools; what it asks waits in `Seat.requests` until the policy has replied.
"""

import asyncio
import json
import secrets
from contextlib import AsyncExitStack
from typing import Any

import httpx
import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["PolicyHarness"]  # what verifiers looks for in a harness's module
LOOPBACK = "127.0.0.1"


class PolicyHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc, unused-ignore]
    """A conversation with tools, as verifiers' own `null` has it, without a process or packages of its own."""

    APPENDS_SYSTEM_PROMPT = SUPPORTS_MCP = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> Any:
        """Talk until a reply calls no tool. Each request goes through verifiers' own endpoint, which keeps the trace
        and ends the episode where a condition of the task says so."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message.model_dump(exclude_none=True) for message in prompt or []]
        async with AsyncExitStack() as stack:
            named = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
            tools, dispatch, servers = await connect_mcp({"mcpServers": named}, stack)
            client = httpx.AsyncClient(timeout=None, headers={"Authorization": f"Bearer {secret}"})
            await stack.enter_async_context(client)
            while True:
                body = {"model": ctx.model, "messages": messages} | ({"tools": tools} if tools else {})
                answer = await client.post(f"{endpoint}/chat/completions", json=body)
                if answer.status_code != httpx.codes.OK:
                    return vf.ProgramResult(1, "", answer.text)
                message = answer.json()["choices"][0]["message"]
                messages.append({name: value for name, value in message.items() if value is not None})
                if not (calls := message.get("tool_calls")):
                    return vf.ProgramResult(0, "", "")
                for call in calls:
                    function = call["function"]
                    result = await call_mcp(servers, dispatch, function["name"], json.loads(function["arguments"]))
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


class Seat:
    """A chat-completions endpoint on loopback that answers when the policy has replied."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = asyncio.Queue()
        self.key = secrets.token_urlsafe(16)  # in the address: nobody else's request is shown to the policy
        self.url = ""

    async def open(self) -> web.AppRunner:
        app = web.Application(client_max_size=2**28)
        app.router.add_post(f"/{self.key}/v1/chat/completions", self.answered)
        # A request of an episode that was left ends with its connection: else a close waits a minute for its reply.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}/{self.key}/v1"
        return runner

    async def answered(self, request: web.Request) -> web.Response:
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        await self.requests.put((await request.json(), reply))
        return web.json_response(await reply)


def completion(action: str, turn: int, with_tools: bool) -> dict[str, Any]:
    """Wrap the policy's action as a chat completion."""
    content = json.loads(action) if with_tools else {"answer": action}
    calls = [
        {
            "id": f"call_{turn}_{number}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)},
        }
        for number, call in enumerate(content.get("calls", []))
    ]
    message = {"role": "assistant", "content": content.get("answer", "")} | ({"tool_calls": calls} if calls else {})
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": f"turn_{turn}", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
