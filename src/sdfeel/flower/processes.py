"""Calls of an app in processes of its own, so that its clients train side by side.

The processes are forked: whatever app this one holds is there without being imported again. Client
i is always called in process i modulo their number, so that what an app keeps in memory of its own
(a data set, say) is where it left it. A call takes the client's state with it and brings it back;
what it computes depends on neither the process nor on which calls end first.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from sdfeel.engines.idle_cores import free_cores, still
from sdfeel.errors import RunError
from sdfeel.flower.arrays import Vector
from sdfeel.flower.client import Answer, FlowerClient

__all__ = ["Calls", "why_here"]

# Packages with threads of their own, which a forked process has not got and waits for.
THREADED = ("jax", "tensorflow")

Pending = Callable[[], Answer | None]


def why_here() -> str:
    """Say why this process cannot be forked; nothing if it can."""
    for name in THREADED:
        if name in sys.modules:
            return f"{name} has threads of its own"
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "the GPU is in use by this process"
    return "" if hasattr(os, "fork") else "this system has no fork"


@dataclass(eq=False)
class _Worker:
    """A process, its end of a pipe, and the calls that it has not begun.

    number  of the call that it is at; None if it is idle
    """

    process: Any
    pipe: Connection
    waiting: deque[tuple[int, tuple[Any, ...]]] = field(default_factory=deque)
    number: int | None = None


class Calls:
    """Calls clients' apps in so many processes; with one, in this process and at once.

    The processes are made with the first call, and end with `close` or with this process. `named`
    are metrics that a line has named as not kept.
    """

    def __init__(self, clients: Sequence[FlowerClient], processes: int) -> None:
        self._clients, self._hands = clients, min(processes, len(clients))
        self._workers: list[_Worker] = []
        self._numbers, self._done = 0, dict[int, Any]()
        self.named = set[str]()

    def begin(
        self, client: FlowerClient, kind: str, model: Vector, number: int, config: Mapping[str, Any]
    ) -> Pending:
        """Begin a `train` or `evaluate` of a client; what it returns waits for the answer."""
        if self._hands == 1:
            answer = getattr(client, kind)(model, number, config)
            return lambda: answer
        if not self._workers:
            self._start()
        call, self._numbers = self._numbers, self._numbers + 1
        arguments = (client.number, kind, model, number, dict(config), client.state)
        self._workers[client.number % self._hands].waiting.append((call, arguments))
        self._feed()
        return lambda: self._wait(call, client)

    def close(self) -> None:
        """End the processes; one that is at work is not waited for."""
        for worker in self._workers:
            worker.pipe.close()
            if worker.number is not None:
                worker.process.terminate()
            worker.process.join()
        self._workers, self._done = [], {}

    def _start(self) -> None:
        fork = multiprocessing.get_context("fork")
        threads = max(1, torch.get_num_threads() // self._hands)
        gc.collect()  # or a child may, before it says that it does not
        free_cores()
        still()
        for _ in range(self._hands):
            ours, theirs = fork.Pipe()
            others = [*(worker.pipe for worker in self._workers), ours]
            process = fork.Process(
                target=_serve, args=(theirs, others, self._clients, threads), daemon=True
            )
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def _feed(self) -> None:
        """Give each process that is idle its next call."""
        for worker in self._workers:
            if worker.number is None and worker.waiting:
                worker.number, arguments = worker.waiting.popleft()
                try:
                    worker.pipe.send(arguments)
                except OSError:
                    raise _lost(worker) from None

    def _wait(self, call: int, client: FlowerClient) -> Answer | None:
        while call not in self._done:
            for pipe in wait([w.pipe for w in self._workers if w.number is not None]):
                self._take(next(w for w in self._workers if w.pipe is pipe))
            self._feed()
        answer, state, problem = self._done.pop(call)
        if problem:
            raise RunError(problem)
        client.state = state
        return answer  # type: ignore[no-any-return]

    def _take(self, worker: _Worker) -> None:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            raise _lost(worker) from None
        assert worker.number is not None  # noqa: S101 - only those at work are waited for
        self._done[worker.number], worker.number = answer, None


def _lost(worker: _Worker) -> RunError:
    worker.process.join()
    return RunError(
        f"a process of the Flower app ended with status {worker.process.exitcode}: out of memory? "
        "flower.processes=1 calls the app in the process of the run"
    )


# In another process


def _serve(
    pipe: Connection, others: Iterable[Connection], clients: Sequence[FlowerClient], threads: int
) -> None:
    """Carry out calls until the other end is gone; Ctrl-C is the other end's to answer.

    A daemon may have no children, and loaders of an app have theirs. What the other end let go of
    is not collected here: its finalizers may wait for threads that are there only (gRPC's).
    """
    gc.freeze()
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, OSError):
        while True:
            number, kind, model, *arguments, state = pipe.recv()
            client, problem = clients[number], ""
            client.state = state
            answer = None
            try:
                answer = getattr(client, kind)(model, *arguments)
            except RunError as mistake:
                problem = str(mistake)
            sys.stdout.flush()
            pipe.send((answer, client.state, problem))
