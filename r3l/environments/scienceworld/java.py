"""The Java machine that ScienceWorld runs in: one per process, ended with the process, whichever way that ends."""

import atexit
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from r3l.errors import WorldError
from r3l.system.packages import import_package

MISSING_JAVA = (
    "ScienceWorld needs Java 8 or newer, and there is no `java` on the path nor under $JAVA_HOME: "
    "install it (Debian: apt-get install default-jre-headless; macOS: brew install openjdk)"
)
# Identity hashes decide in which order the simulator lists objects. On a stock machine they are drawn by thread-local
# state, so that the same episode reads differently the second time; mode 2 makes them constant, and listings
# repeatable.
REPEATABLE = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
SMALL = ("-XX:+UseSerialGC", "-Xss2m")
STOP_TIMEOUT_S = 5.0


def java_path() -> str:
    """Find the `java` to start. Raise `WorldError` with what to install where there is none."""
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    if not java:
        raise WorldError(MISSING_JAVA)
    return java


def jar_path() -> Path:
    """Find the simulator's jar. Raise `WorldError` where the package is not installed."""
    return Path(import_package("scienceworld.constants", "scienceworld").JAR_PATH)


class JavaMachine:
    """A running Java machine with the simulator's classes; `memory_mb` caps its heap.

    Only the process that holds the token can talk to it. Its standard input is a pipe from this process: when that
    closes, by `stop`, by the end of the process or by its being killed, the machine ends.
    """

    def __init__(self, memory_mb: int) -> None:
        java, jar = java_path(), jar_path()
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        with tempfile.TemporaryFile("w+") as complaints:
            try:
                port, token, self.process = launch_gateway(
                    classpath=str(jar),
                    javaopts=[f"-Xmx{memory_mb}m", *SMALL, *REPEATABLE],
                    die_on_exit=True,
                    enable_auth=True,
                    java_path=java,
                    cwd=str(jar.parent),
                    return_proc=True,
                    redirect_stderr=complaints,
                )
            except (OSError, ValueError) as error:  # no port came: it ended at once, and said why
                complaints.seek(0)
                raise WorldError(f"Java did not start ({java}): {complaints.read(2000).strip() or error}") from error
        # Simulators are kept and used again; without memory management no finaliser talks to a machine that has ended.
        self.gateway = JavaGateway(
            java_process=self.process,
            gateway_parameters=GatewayParameters(
                port=port, auth_token=token, auto_field=True, enable_memory_management=False
            ),
        )
        self.idle: list[Any] = []

    def borrow(self) -> Any:
        """Lend a simulator that nobody uses: it holds one episode at a time."""
        return self.idle.pop() if self.idle else self.gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def give_back(self, simulator: Any) -> None:
        self.idle.append(simulator)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """End it and wait for it, so that no zombie stays."""
        self.idle.clear()
        self.gateway.close()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class JavaMachines:
    """The one machine of this process: started when it is first needed, and again where it died."""

    def __init__(self) -> None:
        self.machine: JavaMachine | None = None

    def get(self, memory_mb: int) -> JavaMachine:
        if self.machine is not None and not self.machine.alive:
            self.stop()
        if self.machine is None:
            self.machine = JavaMachine(memory_mb)
            atexit.register(self.stop)
        return self.machine

    def stop(self) -> None:
        atexit.unregister(self.stop)
        machine, self.machine = self.machine, None
        if machine is not None:
            machine.stop()


MACHINES = JavaMachines()
