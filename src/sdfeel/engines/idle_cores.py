"""Cores that torch's threads keep busy while they wait, and how an engine gets them back.

After an operation on several cores OpenMP's threads look for the next one for some milliseconds
before they sleep (libgomp: 300,000 times), and an engine with threads or processes of its own has
to share its cores with them: a third of its speed where a period is as short as that. The command
line asks for OMP_WAIT_POLICY=PASSIVE before torch is loaded; a program that has loaded it cannot.

Threads that are at work, or on their way out, may hold a lock of a library. A process forked at
that moment gets it locked and without the thread that would open it: MKL then waits for ever.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

PATIENCE = 1.0  # seconds that threads have to fall asleep
SOFT = 1  # omp_pause_soft: threads end, and come back with the next operation that needs them


def free_cores() -> None:
    """End the threads that wait for this one's next operation; they are made anew in 0.1 ms."""
    for pause in _runtimes():
        pause(SOFT)


@cache
def _runtimes() -> list[Callable[[int], int]]:
    """`omp_pause_resource_all` of every OpenMP that is loaded; of none if its threads sleep."""
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return []
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    names = {line.split(maxsplit=5)[-1] for line in mapped if "/" in line}
    pauses: list[Callable[[int], int]] = []
    for name in sorted(names):
        if Path(name).name.startswith(("libgomp", "libiomp", "libomp")):
            try:
                pauses.append(ctypes.CDLL(name).omp_pause_resource_all)
            except (OSError, AttributeError):  # replaced on disk meanwhile, or too old to know it
                continue
    return pauses


def still() -> None:
    """Return when no other thread of this process runs, so that it can be forked.

    A thread that Python has joined runs for some time after that. Threads of the user's that never
    sleep are not waited for longer than `PATIENCE`.
    """
    end = time.monotonic() + PATIENCE
    while _others_run() and time.monotonic() < end:
        time.sleep(1e-4)


def _others_run() -> bool:
    try:
        threads = [thread.name for thread in Path("/proc/self/task").iterdir()]
    except OSError:
        return False
    return any(_runs(thread) for thread in threads if int(thread) != threading.get_native_id())


def _runs(thread: str) -> bool:
    try:
        line = Path(f"/proc/self/task/{thread}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended meanwhile
        return False
    return line.rpartition(")")[2].split()[0] != "S"
