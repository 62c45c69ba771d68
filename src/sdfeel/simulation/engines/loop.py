"""The loop engine: the plain loop over clients, in one process for each core.

What many models do best: operations too large or too few for vectorising over clients to pay.
Processes, because Python itself is half of a small step, and forked, so that any model, loss and
data that this process holds is there without being sent. Models go through memory that both sides
see. A client's step uses one core, whatever their number, so the bits are those of `reference`.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.errors import RunError
from sdfeel.simulation.engines.engine import Indices, SummingEngine, Sums, Work
from sdfeel.simulation.engines.idle_cores import free_cores
from sdfeel.simulation.engines.plain import PlainUpdates, one_thread
from sdfeel.simulation.problem import Problem
from sdfeel.trees import Tree

__all__ = ["LoopEngine"]

# A process that is free takes this share of what is left, divided by their number: few parts, each
# of which has a price, and the last ones small, so that all end together.
SHARE = 0.75
NO_MORE = 2**16 - 1  # in place of the number of a part
DONE, FAILED = b"d", b"f"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc
ALIGNED = 64  # bytes at a multiple of which a row begins: a processor's widest vector


class LoopEngine(SummingEngine):
    """It uses as many processes as torch is set to use threads."""

    name = "loop"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._updates = PlainUpdates(problem)
        self._crew: _Crew | None = None

    def local_updates(self, models: Tensor, kept: Rows | None, work: Work) -> NDArray[np.float64]:
        crew = self._ready(len(models))
        if crew is None:
            with one_thread():
                return self._updates.carry_out(models, kept, work)
        crew.models[: len(models)] = models
        losses = crew.carry_out(kept, work)
        models.copy_(crew.models[: len(models)])
        return losses

    def add_up(
        self, start: Tensor, begin: Indices, kept: Rows | None, work: Work, sums: Sums
    ) -> NDArray[np.float64]:
        crew = self._ready(len(begin))
        if crew is None:
            models = start[begin]
            losses = self.local_updates(models, kept, work)
            sums.add(models)
            return losses
        rows, place = np.unique(begin, return_inverse=True)
        _copy_rows(start, rows, crew.start)
        return crew.carry_out(kept, work, place, sums)

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        return self._updates.predict(model, inputs)

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    def _ready(self, clients: int) -> _Crew | None:
        """The processes, if more than one has something to do."""
        hands = torch.get_num_threads()
        if min(hands, clients) <= 1 or self.problem.device.type != "cpu":
            return None
        if self._crew is None or not self._crew.suffices(hands, clients):
            self.close()
            self._crew = _Crew(self.problem, self._updates, hands, clients)
        return self._crew


class _Crew:
    """Processes, and the memory that they share with this one.

    start   models of servers to begin from; models: those of clients, a row each

    The parts of a call lie in a pipe: whoever is free takes the next one, and nobody waits for this
    process, which needs a core itself to hear of it.
    """

    def __init__(self, problem: Problem, updates: PlainUpdates, hands: int, rows: int) -> None:
        self._rows, self._updates, self._hands, self._working = rows, updates, hands, False
        width, trained = problem.layout.size, problem.layout.parameters
        dtype = problem.layout.dtype
        self.start, self.models = _shared(rows, width, dtype), _shared(rows, width, dtype)
        self._anchor = _shared(rows, width, dtype)
        self._shift = _shared(rows, trained, dtype)
        self._kept = {name: _shared(rows, trained, dtype) for name in problem.local.keeps}
        self._numbers = os.pipe()
        fork = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(hands):
            ours, theirs = fork.Pipe()
            others = [*self._pipes, ours]
            process = fork.Process(target=self._serve, args=(theirs, others), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def suffices(self, hands: int, rows: int) -> bool:
        return rows <= self._rows and hands == len(self._pipes)

    def carry_out(
        self, kept: Rows | None, work: Work, place: Indices | None = None, sums: Sums | None = None
    ) -> NDArray[np.float64]:
        """Train `models`, or models that begin as rows `place` of `start` and are added up."""
        count = len(work.clients)
        for name, rows in self._kept.items():
            if kept is not None:
                rows[:count] = kept[name]
        if work.anchor is not None:
            self._anchor[:count] = work.anchor
        if work.shift is not None:
            self._shift[:count] = work.shift
        given = [work.anchor is not None, work.shift is not None, kept is not None]
        begin = np.full(count, -1) if place is None else place
        asked = np.concatenate([given, work.clients, work.first, work.last, begin]).astype(np.int64)
        losses = work.no_losses()
        free_cores()
        self._working = True
        try:
            with one_thread():  # a second one would take the core of a process
                for part in self._in_order(_cut(count, self._hands), asked.tobytes(), losses):
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

    def _in_order(
        self, parts: Sequence[Indices], asked: bytes, losses: NDArray[np.float64]
    ) -> Iterator[Indices]:
        """Parts come out in their order, while others train."""
        busy = self._pipes[: len(parts)]
        numbers = [*range(len(parts)), *[NO_MORE] * len(busy)]
        os.write(self._numbers[1], np.array(numbers, dtype=np.uint16).tobytes())
        for pipe in busy:
            try:
                pipe.send_bytes(asked)
            except OSError:
                raise RunError("a process that trains clients was lost") from None
        done, following = set(), 0
        while busy:
            for ready in wait(busy):
                assert isinstance(ready, Connection)  # noqa: S101 - nothing else was waited for
                number, told = _answer(ready)
                if number == NO_MORE:
                    busy.remove(ready)
                    continue
                own = told.reshape(len(parts[number]), -1)
                losses[parts[number], : own.shape[1]] = own
                done.add(number)
            while following in done:
                yield parts[following]
                following += 1

    def _serve(self, pipe: Connection, others: list[Connection]) -> None:
        """The other process: it ends when this one is gone; Ctrl-C is this one's to answer."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            other.close()
        torch.set_num_threads(1)
        _keep_memory()
        with contextlib.suppress(EOFError, OSError):
            while True:
                asked = np.frombuffer(pipe.recv_bytes(), dtype=np.int64)
                for said in self._train(asked):
                    pipe.send_bytes(said)

    def _train(self, asked: Indices) -> Iterator[bytes]:
        """Parts of a call, until none is left: what is said of each."""
        anchored, shifted, keeps = asked[:3]
        clients, first, last, place = asked[3:].reshape(4, -1)
        count = len(clients)
        kept = {name: own[:count] for name, own in self._kept.items()} if keeps else None
        anchor = self._anchor[:count] if anchored else None
        shift = self._shift[:count] if shifted else None
        work = Work(clients, first, last, anchor, shift)
        parts, draws = _cut(count, self._hands), self._updates.draws(work)
        while (number := int.from_bytes(os.read(self._numbers[0], 2), sys.byteorder)) != NO_MORE:
            part = parts[number]
            try:
                if place[0] >= 0:
                    _copy_rows(self.start, place[part], self.models[_rows(part)])
                losses = self._updates.carry_out(self.models, kept, work, part, draws)
            except Exception as problem:
                notes = ", ".join(getattr(problem, "__notes__", []))
                yield _said(
                    number, FAILED, f"{type(problem).__name__}: {problem} ({notes})".encode()
                )
            else:
                yield _said(number, DONE, losses.tobytes())
        yield _said(NO_MORE, DONE)

    def close(self) -> None:
        """Who waits for work ends by itself; who is at work, because this call failed, is ended."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            if self._working:
                process.terminate()
            process.join()
        for end in self._numbers if self._pipes else ():
            os.close(end)
        self._pipes, self._processes = [], []


def _said(number: int, how: bytes, what: bytes = b"") -> bytes:
    return number.to_bytes(2, sys.byteorder) + how + what


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


def _copy_rows(source: Tensor, rows: Indices, to: Tensor) -> None:
    """to[:n] = source[rows], without the copy in between that indexing makes."""
    for own, row in zip(to, rows, strict=False):
        own.copy_(source[int(row)])


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
