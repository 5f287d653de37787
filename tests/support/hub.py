"""A server with the hub's routes for uploads, on loopback: what was created, and the files that it was given."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandInHub:
    """It knows one token. `refuses`: the status and text of every answer."""

    def __init__(self, token: str = "token-of-the-test") -> None:
        self.token, self.refuses = token, (0, "")
        self.created: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.messages: list[str] = []
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def answer(self, route: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if route == "/api/repos/create":
            self.created.append(json.loads(body))
            return 200, {"url": f"{self.url}/{self.created[-1].get('organization', 'me')}/{self.created[-1]['name']}"}
        if route == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if "/preupload/" in route:
            asked = json.loads(body)["files"]
            return 200, {
                "files": [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in asked]
            }
        if "/commit/" in route:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "header":
                    self.messages.append(line["value"]["summary"])
                elif line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return 200, {"commitUrl": f"{self.url}/o/n/commit/1", "commitOid": "1" * 40}
        return 404, {"error": f"no route {route}"}


def _handler(hub: StandInHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = hub.answer(self.path.partition("?")[0], body)
            if self.headers.get("Authorization") != f"Bearer {hub.token}":
                status, answer = 401, {"error": "Invalid credentials"}
            if hub.refuses[0]:
                status, answer = hub.refuses[0], {"error": hub.refuses[1]}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler
