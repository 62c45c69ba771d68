"""`--ranks N`: the same command as N processes on this machine, watched until they end.

`torchrun --nproc-per-node N -m sdfeel run ...` does the same, on several machines too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from sdfeel.errors import InputError, RunError

__all__ = ["start_ranks", "started_here"]

PARENT = "SDFEEL_RANKS_PARENT"
# How often the ranks are looked at, and how long the others have to end once one has died.
LOOK = 0.1
GRACE = 10.0


def started_here() -> bool:
    """Whether this process is a rank already, by this or by torchrun."""
    return "WORLD_SIZE" in os.environ


def end_with_parent() -> None:
    """In a rank that `--ranks` started: end when the process that watches over it does."""
    if PARENT in os.environ:
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)
        if os.getppid() != int(os.environ[PARENT]):
            sys.exit(128 + signal.SIGTERM)


def start_ranks(count: int, arguments: Sequence[str]) -> int:
    """Run `sdfeel arguments` as `count` ranks; the exit status of the first that fails, or 0."""
    if count < 1:
        raise InputError("--ranks", count, "at least 1")
    shared = {
        **os.environ,
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // count)),
    }
    command = [sys.executable, "-m", "sdfeel", *arguments]
    # In a session of their own, so that a Ctrl-C reaches each rank once: through us.
    ranks = [
        subprocess.Popen(  # noqa: S603
            command,
            env={**shared, "RANK": str(r), "LOCAL_RANK": str(r), PARENT: str(os.getpid())},
            start_new_session=True,
        )
        for r in range(count)
    ]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _tell(ranks, number))
    try:
        return _watch(ranks)
    finally:
        _end(ranks)


def _watch(ranks: list[subprocess.Popen[bytes]]) -> int:
    while True:
        statuses = [rank.poll() for rank in ranks]
        for number, status in enumerate(statuses):
            if status is not None and status < 0:
                raise RunError(
                    f"rank {number} was killed ({signal.Signals(-status).name}), so the job ends "
                    "here; start it again with --resume to go on from the last checkpoint"
                )
        failed = [status for status in statuses if status]
        if failed or all(status == 0 for status in statuses):
            return failed[0] if failed else 0
        time.sleep(LOOK)


def _tell(ranks: list[subprocess.Popen[bytes]], number: int) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(number)


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Nobody is left behind: those who do not end by themselves are killed."""
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline and any(rank.poll() is None for rank in ranks):
        if any(rank.poll() not in (None, 0, 130, 143) for rank in ranks):
            break
        time.sleep(LOOK)
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
        rank.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
