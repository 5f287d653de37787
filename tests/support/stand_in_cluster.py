"""A stand-in for a cluster: Kubernetes' address for jobs, which runs what a job's container would run as a process of
this machine.

It holds every manifest against Kubernetes' own schema, puts in what a pod is told (config map, secrets, its index) and
knows no image.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster_rules import schema_finding

ROOT = Path(__file__).parents[2]
JOBS = "/apis/batch/v1/namespaces/r3l/jobs"
SCHEDULED_FOR_POD = (
    "parallelism",
    "completions",
)  # Prefect wants them in the pod; Kubernetes drops what it does not know


class StandInCluster:
    """`project`: the config map `project`. `secrets`: name -> its variables. What the processes say goes to
    `folder`."""

    def __init__(self, folder: Path, project: dict[str, str], secrets: dict[str, dict[str, str]]) -> None:
        self.folder, self.project, self.secrets = folder, project, secrets
        self.jobs: dict[str, dict[str, Any]] = {}
        self.refused: list[str] = []
        self.running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def kubeconfig(self) -> Path:
        """The file that a client of this cluster is given."""
        port = self._server.server_address[1]
        said = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "worker"}}],
            "users": [{"name": "worker", "user": {}}],
        }
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(said))
        return path

    def begin(self, job: dict[str, Any]) -> dict[str, Any] | str:
        """Start the job's pods. Gives back the job as the cluster would, or what is wrong with it."""
        pod = job["spec"]["template"]["spec"]
        for name in SCHEDULED_FOR_POD:
            pod.pop(name, None)
        if said := schema_finding(job):
            self.refused.append(said)
            return said
        with self._lock:
            name = f"{job['metadata']['generateName']}{len(self.jobs)}"
            made = job | {"metadata": job["metadata"] | {"name": name}}
            self.jobs[name] = made
            for index in range(job["spec"].get("completions", 1)):
                self.running.append(self._start(name, index, pod["containers"][0]))
        return made

    def _start(self, name: str, index: int, container: dict[str, Any]) -> subprocess.Popen[bytes]:
        environment = self.environment_of(name, index, container)
        with (self.folder / f"{name}-{index}.log").open("w") as log:
            return subprocess.Popen(
                [*container.get("command", []), *container["args"]],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )

    def environment_of(self, name: str, index: int, container: dict[str, Any]) -> dict[str, str]:
        """The variables of a pod's process: nothing of this one's but where programs are."""
        found = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.folder)}
        for source in container.get("envFrom", []):
            found |= self.project if "configMapRef" in source else self.secrets[source["secretRef"]["name"]]
        fields = {
            "metadata.labels['batch.kubernetes.io/job-name']": name,
            "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        }
        for one in container.get("env", []):
            reference = one.get("valueFrom", {})
            if key := reference.get("secretKeyRef"):
                found[one["name"]] = self.secrets[key["name"]][key["key"]]
            elif field := reference.get("fieldRef"):
                found[one["name"]] = fields[field["fieldPath"]]
            else:
                found[one["name"]] = re.sub(
                    r"\$\((\w+)\)", lambda match: found.get(match[1], match[0]), one.get("value", "")
                )
        return found

    def said(self) -> str:
        """The last lines of every process."""
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        self._server.shutdown()
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def handler_of(cluster: StandInCluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            made = (
                cluster.begin(body)
                if self.path.partition("?")[0] == JOBS
                else f"{self.path}: not among the rights of a worker"
            )
            refused = isinstance(made, str)
            content = json.dumps({"kind": "Status", "message": made} if refused else made).encode()
            self.send_response(422 if refused else 201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return Handler
