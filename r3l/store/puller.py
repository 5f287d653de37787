"""Brings policies to a sampling server's host: `python -m r3l.store.puller --store s3://bucket/prefix`, beside the server.

POST /pull {"place": "demo/policies/iteration=00007/policy", "digest": "..."} answers {"path": ...}: a folder of this host, checked
against the digest. With the variable R3L_ENGINE_KEY it asks for that key, as the server does. Needs neither torch nor Prefect.
"""

from __future__ import annotations

import argparse
import hmac
import json
import logging
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.store.policy_places import fetch_policy
from r3l.store.stage import Store

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
PLACE = re.compile(rf"\.policies/[0-9a-f]{{16}}|{NAME}/(branch={NAME}/)?policies/iteration=\d{{5,}}/policy")
KEEP = 3  # pulled policies; older ones go
KEY = "R3L_ENGINE_KEY"
log = logging.getLogger("r3l.puller")


class Puller:
    """One pull at a time; what is there and whole is not fetched again."""

    def __init__(self, store: Store, keep: int = KEEP) -> None:
        self.store, self.keep = store, keep
        self.pulled: list[str] = []
        self._lock = threading.Lock()

    def pull(self, place: str, digest: str) -> Path:
        """The policy's folder here. Raises `StoreError` for a place that is none, or that holds another policy."""
        if not PLACE.fullmatch(place):
            raise StoreError(f"place {place!r}: expected RUN/policies/iteration=00007/policy, or .policies/DIGEST")
        with self._lock:
            folder = fetch_policy(self.store, place, digest)
            self.pulled = [*(one for one in self.pulled if one != place), place]
            while len(self.pulled) > self.keep:
                self.store.files.forget(self.pulled.pop(0))
            return folder


def handler_of(puller: Puller, key: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(200 if self.path == "/health" else 404, {})

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if key and not hmac.compare_digest((self.headers.get("Authorization") or "").encode(), f"Bearer {key}".encode()):
                return self.answer(401, {"error": f"{KEY} is set here: send it as a bearer token"})
            if self.path != "/pull":
                return self.answer(404, {"error": "POST /pull is all there is"})
            try:
                asked = json.loads(content)
                return self.answer(200, {"path": str(puller.pull(str(asked["place"]), str(asked["digest"])).absolute())})
            except (ValueError, KeyError, TypeError) as error:
                return self.answer(400, {"error": f"expected JSON with place and digest: {error!r}"})
            except (StoreError, OSError) as error:
                return self.answer(503, {"error": str(error)})

        def answer(self, status: int, said: dict[str, Any]) -> None:
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            log.info(format, *args)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m r3l.store.puller", description="bring policies of a store to this host")
    parser.add_argument("--store", required=True, help="folder or s3:// address of the store")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; beyond loopback only with R3L_ENGINE_KEY")
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument("--keep", type=int, default=KEEP, help="policies kept on this host")
    asked = parser.parse_args()
    key = os.environ.get(KEY, "")
    if not key and not (asked.host.startswith("127.") or asked.host in ("localhost", "::1")):
        parser.error(f"--host {asked.host} is not loopback: set {KEY}")
    logging.basicConfig(level=logging.INFO)
    server = ThreadingHTTPServer((asked.host, asked.port), handler_of(Puller(Store.open(asked.store), asked.keep), key))
    log.info("pulling policies of %s, listening on %s:%d", asked.store, asked.host, server.server_address[1])
    server.serve_forever()


if __name__ == "__main__":
    main()
