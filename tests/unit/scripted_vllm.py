"""A scripted HTTP server with vLLM's routes: what it samples is worked out from the prompt and the policy it was
given."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VOCABULARY = 50
STOP = 49


def scripted_reply(prompt: list[int], policy: str, count: int, seed: int) -> list[int]:
    """Ids that depend on all of prompt, policy and seed; the stop token comes after (sum of the prompt) % 7 tokens."""
    start = sum(prompt) + len(policy) * 11 + seed
    ids = [(start + k) % (VOCABULARY - 1) for k in range(sum(prompt) % 7)] + [STOP]
    return ids[:count]


def scripted_logprob(policy: str, place: int) -> float:
    return -0.25 * (place + 1) - 0.125 * (sum(map(ord, policy)) % 8)


class ScriptedVllm:
    """One server on a free port. `dying` answers are cut off; what `instead` names is loaded in the place of what is
    asked for. Without `sleeps` it was started without vLLM's sleep mode."""

    def __init__(
        self,
        key: str = "",
        development: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
        name: str = "served",
        sleeps: bool = True,
        weights: str = "start",
    ) -> None:
        self.key, self.development, self.name, self.sleeps = key, development, name, sleeps
        self.missing: set[str] = set()  # what a sleep took out of the GPU's memory, and has not come back
        self.weights = weights
        self.adapters: dict[str, str] = {}
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.dying = 0
        self.stopped = False
        self.instead = ""
        self.finish: str | None = None
        self.http = ThreadingHTTPServer((host, port), handler_of(self))
        self.http.daemon_threads = True
        self.url = f"http://{host}:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Answer nothing more: not on the connections that are still open either."""
        self.stopped = True
        self.http.shutdown()
        self.http.server_close()

    def policy(self, model: str) -> str | None:
        return self.weights if model == self.name else self.adapters.get(model)

    def answer(self, route: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.bodies.append((route, body))
        if route == "/health":
            return 200, None
        if route == "/v1/models":
            adapters = [{"id": name, "parent": self.name} for name in self.adapters]
            return 200, {"data": [{"id": self.name, "max_model_len": 64, "parent": None}, *adapters]}
        if route == "/v1/completions":
            return (500, {"error": f"asleep: no {sorted(self.missing)}"}) if self.missing else self.completions(body)
        if not self.development:
            return 404, {"detail": "Not Found"}
        if route.partition("?")[0] in ("/sleep", "/wake_up", "/is_sleeping"):
            return self.sleeping(*route.partition("?")[::2])
        if route == "/collective_rpc":
            if "weights" in self.missing:
                return 500, {"error": "the weights have no memory"}
            self.weights = self.instead or body["kwargs"]["weights_path"]
            return 200, {"results": [None]}
        if route == "/reset_prefix_cache":
            return 200, {"success": True}
        if route == "/v1/load_lora_adapter":
            self.adapters[body["lora_name"]] = self.instead or body["lora_path"]
            return 200, None
        if route == "/v1/unload_lora_adapter":
            del self.adapters[body["lora_name"]]
            return 200, None
        return 404, {"detail": "Not Found"}

    def sleeping(self, route: str, asked: str) -> tuple[int, Any]:
        """As vLLM: level 2 forgets weights and adapters, and the pieces come back by their tags."""
        if not self.sleeps:
            return 500, {"error": "sleep mode is not enabled"}
        if route == "/sleep":
            self.missing = {"weights", "kv_cache"}
            if asked == "level=2":
                self.weights, self.adapters = "lost", {}
        elif route == "/wake_up":
            self.missing -= {asked.removeprefix("tags=")} if asked else {"weights", "kv_cache"}
        return 200, {"is_sleeping": bool(self.missing)}

    def completions(self, body: dict[str, Any]) -> tuple[int, Any]:
        policy = self.policy(body["model"])
        if policy is None:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        prompt = body["prompt"]
        if len(prompt) + body["max_tokens"] > 64:
            return 400, {"error": {"message": "maximum context length is 64 tokens"}}
        if "prompt_logprobs" in body:
            places = [
                {str(token): {"logprob": scripted_logprob(policy, place)}} for place, token in enumerate(prompt[1:])
            ]
            return 200, {"choices": [{"prompt_logprobs": [None, *places]}]}
        ids = scripted_reply(prompt, policy, body["max_tokens"], body["seed"])
        finish = self.finish or ("stop" if ids[-1] in body["stop_token_ids"] else "length")
        logprobs = [scripted_logprob(policy, place) for place in range(len(ids))]
        return 200, {
            "choices": [{"token_ids": ids, "logprobs": {"token_logprobs": logprobs}, "finish_reason": finish}],
            "usage": {"prompt_tokens_details": {"cached_tokens": len(prompt) // 2}},
        }


def handler_of(server: ScriptedVllm) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def reply(self, body: dict[str, Any]) -> None:
            if server.dying and self.path == "/v1/completions":
                server.dying -= 1
                self.connection.close()
                return
            status, answer = server.answer(self.path, body)
            if server.stopped:
                self.connection.close()
                return
            if server.key and self.headers.get("Authorization") != f"Bearer {server.key}" and self.path != "/health":
                status, answer = 401, {"error": "Unauthorized"}
            content = json.dumps(answer).encode() if answer is not None else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler
