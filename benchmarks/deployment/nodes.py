"""The nodes of a deployment as processes of this machine: to harm, to bring back and to read."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.operate.launch import Launch

__all__ = ["Nodes"]


class Nodes:
    """Nodes that run while the context is open, and not longer.

    Args:
        file: the deployment file.
        deployment: what it says.
        without: nodes that are not started.
    """

    def __init__(self, file: Path, deployment: Deployment, without: Iterable[str] = ()) -> None:
        self.deployment = deployment
        roles = {edge.name: "edge" for edge in deployment.edges}
        roles |= {client.name: "client" for client in deployment.clients}
        self.roles = {name: role for name, role in roles.items() if name not in set(without)}
        self._launch = Launch(file, deployment, file.parent / "logs")

    def __enter__(self) -> Nodes:
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            for name in self.roles:
                self.start(name)
        except BaseException:  # also Ctrl-C: those that were started do not stay
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Stop all nodes, frozen ones too, and wait for them."""
        for name in self.processes:
            self.signal(name, signal.SIGCONT)
        self._launch.end()

    @property
    def logs(self) -> Path:
        """The folder with NAME.jsonl and NAME.err of each node."""
        return self._launch.logs

    @property
    def processes(self) -> dict[str, subprocess.Popen[bytes]]:
        """The process of each node that was started, also if it has ended."""
        return self._launch.processes

    @property
    def edges(self) -> list[str]:
        """Names of the edges that are started."""
        return [name for name, role in self.roles.items() if role == "edge"]

    def start(self, name: str) -> None:
        """Start a node, or start it again; its log goes on."""
        self._launch.start(self.roles[name], name)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a node; one that has ended gets none."""
        self.processes[name].send_signal(number)

    def status(self, name: str) -> int | None:
        """Return the exit status of a node, or None while it runs."""
        return self.processes[name].poll()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the log of a node."""
        return self._launch.lines(name)

    def lines_of_edges(self) -> list[dict[str, Any]]:
        """Return the logs of all edges, one edge after the other."""
        return [line for name in self.edges for line in self.lines(name)]
