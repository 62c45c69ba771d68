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

from sdfeel.cli.output import say
from sdfeel.errors import InputError, RunError

__all__ = ["end_with_parent", "explain", "start_ranks", "started_here"]

PARENT = "SDFEEL_RANKS_PARENT"
# The descriptor to which a rank writes what went wrong; so much of it goes through in one piece.
ERRORS = "SDFEEL_RANKS_ERRORS"
LONGEST = 4000
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


def explain(problem: Exception) -> None:
    """Say what went wrong; a rank that `--ranks` started leaves that to whoever watches over it."""
    if ERRORS in os.environ:
        text = str(problem).encode()[:LONGEST]
        os.write(int(os.environ[ERRORS]), os.environ["RANK"].encode() + b"\t" + text + b"\0")
    else:
        who = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        say(f"error: {who}{problem}", style="red")


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
    reader, errors = os.pipe()
    shared |= {PARENT: str(os.getpid()), ERRORS: str(errors)}
    # In a session of their own, so that a Ctrl-C reaches each rank once: through us.
    ranks = [
        subprocess.Popen(  # noqa: S603
            command,
            env={**shared, "RANK": str(r), "LOCAL_RANK": str(r)},
            start_new_session=True,
            pass_fds=[errors],
        )
        for r in range(count)
    ]
    os.close(errors)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _tell(ranks, number))
    try:
        return _watch(ranks)
    finally:
        _end(ranks)
        _explain_once(_read(reader))


def _read(descriptor: int) -> bytes:
    """What is in the pipe now; nobody is waited for who might still hold its other end."""
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 2**20)
    except BlockingIOError:
        return b""
    finally:
        os.close(descriptor)


def _explain_once(data: bytes) -> None:
    """What several ranks say in the same words is said once."""
    ranks_by_line: dict[str, list[str]] = {}
    for line in data.split(b"\0")[:-1]:
        rank, _, text = line.decode(errors="replace").partition("\t")
        ranks_by_line.setdefault(text, []).append(rank)
    for text, ranks in ranks_by_line.items():
        who = f"rank {ranks[0]}: " if len(ranks) == 1 else ""
        say(f"error: {who}{text}", style="red")


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
