"""What measurements of processes need: their memory, and ports that they can listen on."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from itertools import cycle
from pathlib import Path

__all__ = ["free_ports", "memory"]

# Below the ports that the system gives to connections: what is free now stays free until a node
# listens. Each worker of the test suite has its own, and other programs begin elsewhere.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
EACH = 3_000
FIRST = 10_000 + EACH * (WORKER % 6)
START = random.randrange(EACH)  # noqa: S311 - chance, not secrets
PORTS = cycle([FIRST + (START + number) % EACH for number in range(EACH)])


def free_ports(count: int) -> list[int]:
    """Return ports that no process listens on, and that are not given again soon."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def memory(process: int | str = "self", peak: bool = False) -> float:
    """Return the resident memory of a process in bytes; 0 if there is no such process.

    Args:
        process: its id.
        peak: the most that it ever had. Not `ru_maxrss`, which a child may take over from the
            process that started it.
    """
    key = "VmHWM:" if peak else "VmRSS:"
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(key):
                return 1024.0 * int(line.split()[1])
    return 0.0
