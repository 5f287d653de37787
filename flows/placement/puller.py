"""Bring policies to the host of a sampling server: `python -m flows.placement.puller --store s3://bucket/prefix`,
beside the server.

POST /pull {"place": "demo/policies/iteration=00007/policy", "digest": "..."} answers {"path": ...}: a folder of this
host, checked against the digest. With the variable R3L_ENGINE_KEY it asks for that key, as the server does. Needs
neither torch nor Prefect.
"""

import argparse
import hmac
import json
import logging
import os
import re
import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.store.policies.places import fetch_policy
from r3l.store.stage import Store

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
PLACE = re.compile(rf"\.policies/[0-9a-f]{{16}}|{NAME}/(branch={NAME}/)?policies/iteration=\d{{5,}}/policy")
KEEP = 3  # pulled policies; older ones go
KEY = "R3L_ENGINE_KEY"
LENGTH = re.compile(r"[0-9]{1,9}")
MOST_BYTES = 4_096  # of a request's body: a place and a digest
MOST_CONNECTIONS = 32  # at a time; a further one is answered 503
IDLE_S = 10.0  # seconds that a client may be silent
DRAIN_S = 0.5
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
log = logging.getLogger("r3l.puller")


class Puller:
    """The puller. It pulls one policy at a time and does not fetch complete ones again."""

    def __init__(self, store: Store, keep: int = KEEP) -> None:
        self.store, self.keep = store, keep
        self.pulled: list[str] = []
        self._lock = threading.Lock()

    def pull(self, place: str, digest: str) -> Path:
        """Bring the policy's folder here. Raise `StoreError` for a place that is none, or that holds another policy."""
        if not PLACE.fullmatch(place):
            raise StoreError(f"place {place!r}: expected RUN/policies/iteration=00007/policy, or .policies/DIGEST")
        with self._lock:
            folder = fetch_policy(self.store, place, digest)
            self.pulled = [*(one for one in self.pulled if one != place), place]
            while len(self.pulled) > self.keep:
                self.store.files.forget(self.pulled.pop(0))
            return folder


class PullerServer(ThreadingHTTPServer):
    """Serve at most `MOST_CONNECTIONS` clients at a time, each with a thread of its own."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], puller: Puller, key: str) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.puller, self.key = puller, key
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            return super().process_request(request, client_address)
        with suppress(OSError):
            request.sendall(BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log in one line what ended a connection, such as a client that went away."""
        log.warning("%s: %r", client_address, sys.exc_info()[1])


class Handler(BaseHTTPRequestHandler):
    """Answer one request, then close the connection."""

    server: PullerServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        key, puller = self.server.key, self.server.puller
        authorization = (self.headers.get("Authorization") or "").encode()
        if key and not hmac.compare_digest(authorization, f"Bearer {key}".encode()):
            return self.refuse(401, f"{KEY} is set here: send it as a bearer token")
        if self.path != "/pull":
            return self.refuse(404, "POST /pull is all there is")
        length = self.headers.get("Content-Length") or ""
        if not LENGTH.fullmatch(length) or int(length) > MOST_BYTES:
            return self.refuse(413, f"Content-Length {length!r:.40}: expected 0 to {MOST_BYTES} bytes")
        try:
            request = json.loads(self.rfile.read(int(length)))
            return self.answer(
                200, {"path": str(puller.pull(str(request["place"]), str(request["digest"])).absolute())}
            )
        except TimeoutError:
            return self.refuse(408, f"no {length} bytes within {self.timeout:g} s")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return self.answer(400, {"error": f"expected JSON with place and digest: {error!r:.200}"})
        except (StoreError, OSError) as error:
            return self.answer(503, {"error": str(error)})

    def refuse(self, status: int, why: str) -> None:
        """Answer without having read the body. What the client still sends is discarded for a moment, because closing
        immediately would reset the connection before the client sees the answer."""
        self.answer(status, {"error": why})
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(DRAIN_S)
            for _ in range(MOST_BYTES // 256):
                if not self.connection.recv(4_096):
                    break

    def answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        log.info(format, *args)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m flows.placement.puller", description="bring policies of a store to this host"
    )
    parser.add_argument("--store", required=True, help="folder or s3:// address of the store")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; beyond loopback only with R3L_ENGINE_KEY"
    )
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument("--keep", type=int, default=KEEP, help="policies kept on this host")
    options = parser.parse_args()
    key = os.environ.get(KEY, "")
    if not key and not (options.host.startswith("127.") or options.host in ("localhost", "::1")):
        parser.error(f"--host {options.host} is not loopback: set {KEY}")
    logging.basicConfig(level=logging.INFO)
    server = PullerServer((options.host, options.port), Puller(Store.open(options.store), options.keep), key)
    log.info("pulling policies of %s, listening on %s:%d", options.store, options.host, server.server_address[1])
    server.serve_forever()


if __name__ == "__main__":
    main()
