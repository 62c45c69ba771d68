"""Processes that train clients, and the memory that they share with the one that asks them.

They are forked: any model, loss and data that this process holds is there without being sent. What
a call asks for and the models of clients lie in memory that all see. The numbers of a call's parts
lie in a pipe: whoever is free takes the next one, and nobody waits for this process, which needs a
core itself to hear of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import multiprocessing
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.errors import RunError
from sdfeel.simulation.engines.draws import Draws
from sdfeel.simulation.engines.engine import Indices, Sums, Work
from sdfeel.simulation.engines.idle_cores import free_cores, still
from sdfeel.simulation.engines.plain import PlainUpdates, Start, one_thread
from sdfeel.simulation.problem import Problem

__all__ = ["Processes"]

# A process that is free takes this share of what is left, divided by their number: few parts, each
# of which has a price, and the last ones small, so that all end together.
SHARE = 0.75
END = 2**16 - 1  # in place of the number of a part: there will be no other
DONE, FAILED = b"d", b"f"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc
ALIGNED = 64  # bytes at a multiple of which a row begins: a processor's widest vector


@dataclass(frozen=True, eq=False)
class _Call:
    """What is asked for, as one of the processes sees it.

    number  of the call
    start   which models begin as which of the servers'; None: as they are
    """

    number: int
    parts: Sequence[Indices]
    work: Work
    kept: Rows | None
    start: Start | None
    draws: Draws


class Processes:
    """As many as there are hands, for calls of at most so many rows.

    start   models of servers to begin from; models: those of clients, a row each
    """

    def __init__(self, problem: Problem, updates: PlainUpdates, hands: int, rows: int) -> None:
        self._rows, self._updates, self._hands, self._working = rows, updates, hands, False
        width, trained = problem.layout.size, problem.layout.parameters
        dtype = problem.layout.dtype
        self.start, self.models = _shared(rows, width, dtype), _shared(rows, width, dtype)
        self._anchor = _shared(rows, width, dtype)
        self._shift = _shared(rows, trained, dtype)
        self._kept = {name: _shared(rows, trained, dtype) for name in problem.local.keeps}
        self._asked: Indices = _shared(5, max(rows, 5), torch.int64).numpy()
        self._numbers = os.pipe()
        fork = multiprocessing.get_context("fork")
        self._pipes: dict[int, Connection] = {}
        self._answers = select.poll()
        self._processes = []
        free_cores()
        still()
        for _ in range(hands):
            ours, theirs = fork.Pipe(duplex=False)
            others = [*self._pipes.values(), ours]
            process = fork.Process(target=self._serve, args=(theirs, others), daemon=True)
            process.start()
            theirs.close()
            self._pipes[ours.fileno()] = ours
            self._answers.register(ours.fileno(), select.POLLIN)
            self._processes.append(process)

    def suffices(self, hands: int, rows: int) -> bool:
        return rows <= self._rows and hands == len(self._pipes)

    def carry_out(
        self, kept: Rows | None, work: Work, place: Indices | None = None, sums: Sums | None = None
    ) -> NDArray[np.float64]:
        """Train `models`, or models that begin as rows `place` of `start` and are added up."""
        count = len(work.clients)
        self._ask(kept, work, place)
        losses = work.no_losses()
        free_cores()
        self._working = True
        try:
            with one_thread():  # a second one would take the core of a process
                for part in self._in_order(_cut(count, self._hands), losses):
                    if sums is not None:
                        own = Sums(sums.rows, sums.to[part], sums.weights[part], sums.empty)
                        own.add(self.models[_rows(part)])
        except BaseException:
            self.close()
            raise
        self._working = False
        for name, rows in self._kept.items():
            if kept is not None:
                kept[name].copy_(rows[:count])
        return losses

    def _ask(self, kept: Rows | None, work: Work, place: Indices | None) -> None:
        """Lay out a call where all see it."""
        count = len(work.clients)
        for name, rows in self._kept.items():
            if kept is not None:
                rows[:count] = kept[name]
        if work.anchor is not None:
            self._anchor[:count] = work.anchor
        if work.shift is not None:
            self._shift[:count] = work.shift
        given = work.anchor is not None, work.shift is not None, kept is not None
        self._asked[0, :5] = self._asked[0, 0] + 1, count, *given
        self._asked[1:, :count] = (
            work.clients, work.first, work.last, np.full(count, -1) if place is None else place,
        )  # fmt: skip

    def _in_order(self, parts: Sequence[Indices], losses: NDArray[np.float64]) -> Iterator[Indices]:
        """Parts come out in their order, while others train."""
        self._write(range(len(parts)))
        done, following = set[int](), 0
        while following < len(parts):
            for place, _ in self._answers.poll():
                number, told = _answer(self._pipes[place])
                own = told.reshape(len(parts[number]), -1)
                losses[parts[number], : own.shape[1]] = own
                done.add(number)
            while following in done:
                yield parts[following]
                following += 1

    def _write(self, numbers: Sequence[int]) -> None:
        os.write(self._numbers[1], np.array(numbers, dtype=np.uint16).tobytes())

    def close(self) -> None:
        """Who waits for work is told to end; who is at work, because this call failed, is ended."""
        if not self._pipes:
            return
        self._write([END] * self._hands)
        for process in self._processes:
            if self._working:
                process.terminate()
            process.join()
        for pipe in self._pipes.values():
            pipe.close()
        for end in self._numbers:
            os.close(end)
        self._pipes, self._processes = {}, []

    # In another process

    def _serve(self, pipe: Connection, others: list[Connection]) -> None:
        """It ends when it is told to or this one is gone; Ctrl-C is this one's to answer."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            other.close()
        os.close(self._numbers[1])
        torch.set_num_threads(1)
        _keep_memory()
        call: _Call | None = None
        with contextlib.suppress(OSError):
            while (number := self._next()) != END:
                if call is None or call.number != self._asked[0, 0]:
                    call = self._heard()
                pipe.send_bytes(self._trained(call, number))

    def _next(self) -> int:
        """The number of a part that nobody has taken, once there is one."""
        found = os.read(self._numbers[0], 2)
        return int.from_bytes(found, sys.byteorder) if found else END

    def _heard(self) -> _Call:
        number, count, anchored, shifted, keeps = self._asked[0, :5].tolist()
        clients, first, last, place = self._asked[1:, :count].copy()
        kept = {name: own[:count] for name, own in self._kept.items()} if keeps else None
        anchor = self._anchor[:count] if anchored else None
        shift = self._shift[:count] if shifted else None
        work = Work(clients, first, last, anchor, shift)
        start = (self.start, place.tolist()) if place[0] >= 0 else None
        parts, draws = _cut(count, self._hands), self._updates.draws(work)
        return _Call(number, parts, work, kept, start, draws)

    def _trained(self, call: _Call, number: int) -> bytes:
        """Train a part of a call: what is said of it."""
        part, told = call.parts[number], number.to_bytes(2, sys.byteorder)
        try:
            losses = self._updates.carry_out(
                self.models, call.kept, call.work, part, call.draws, call.start
            )
        except Exception as problem:
            notes = ", ".join(getattr(problem, "__notes__", []))
            return told + FAILED + f"{type(problem).__name__}: {problem} ({notes})".encode()
        return told + DONE + losses.tobytes()


def _answer(pipe: Connection) -> tuple[int, NDArray[np.float64]]:
    """The number of a part, and its losses; what went wrong is raised."""
    try:
        said = pipe.recv_bytes()
    except (EOFError, OSError):
        raise RunError("a process that trains clients was lost") from None
    if said[2:3] == FAILED:
        raise RuntimeError(said[3:].decode())
    return int.from_bytes(said[:2], sys.byteorder), np.frombuffer(said[3:])


def _keep_memory() -> None:
    """Keeps glibc from giving back what a step frees and asking for it in the next.

    Whether it does depends on where things lie on the heap, and so on the start of a process.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option, value in ((M_TRIM_THRESHOLD, 2**31 - 1), (M_MMAP_THRESHOLD, 2**25)):
            libc.mallopt(option, value)


def _rows(part: Indices) -> slice:
    return slice(int(part[0]), int(part[-1]) + 1)


def _cut(count: int, hands: int) -> list[Indices]:
    """Clients 0 to count - 1 in parts, the first the largest."""
    parts, start = [], 0
    while start < count:
        size = math.ceil(SHARE * (count - start) / hands)
        parts.append(np.arange(start, start + size))
        start += size
    return parts


def _shared(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Memory that forked processes see; it takes room only once it is written to."""
    aligned = ALIGNED // dtype.itemsize
    stride = max(1, math.ceil(columns / aligned)) * aligned
    memory = mmap.mmap(-1, max(1, rows) * stride * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(-1, stride)[:rows, :columns]
