"""What measurements of processes need: their memory, and ports that they can listen on."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

__all__ = ["free_ports", "memory"]

# Below the ports that the system gives to connections: what is free now stays free.
PORTS = range(10_000, 20_000)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that no process listens on."""
    ports: list[int] = []
    start = random.randrange(len(PORTS))  # noqa: S311 - another benchmark starts elsewhere
    for number in range(len(PORTS)):
        if len(ports) == count:
            break
        port = PORTS[(start + number) % len(PORTS)]
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
