"""A web server on loopback that serves a folder, whole files and ranges of them, and counts the bytes that it sends."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


class RangeServer(ThreadingHTTPServer):
    daemon_threads = True
    sent = 0
    folder = Path()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/some/where"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        path = self.server.folder / unquote(self.path).removeprefix("/some/where/")
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        size, asked = len(content), re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if asked else 200)
        if asked:
            start, end = int(asked[1]), min(int(asked[2]), size - 1)
            content = content[start : end + 1]
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
        self.send_header("Last-Modified", "Thu, 26 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)
            self.server.sent += len(content)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[RangeServer]:
    server = RangeServer(("127.0.0.1", 0), Handler)
    server.folder = folder
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
