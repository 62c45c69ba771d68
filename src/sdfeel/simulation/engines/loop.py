"""The loop engine: the plain loop over clients, in one process for each core.

What many models do best: operations too large or too few for vectorising over clients to pay.
Processes, because Python itself is half of a small step, and forked, so that any model, loss and
data that this process holds is there without being sent. Models go through memory that both sides
see. A client's step uses one core, whatever their number, so the bits are those of `reference`.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.errors import RunError
from sdfeel.simulation.engines.engine import Indices, SummingEngine, Sums, Work
from sdfeel.simulation.engines.plain import PlainUpdates, one_thread
from sdfeel.simulation.problem import Problem
from sdfeel.trees import Tree

__all__ = ["LoopEngine"]

# A process that is free takes this share of what is left, divided by their number: few parts, each
# of which has a price, and the last ones small, so that all end together.
SHARE = 0.5
DONE, FAILED = b"d", b"f"


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
    """

    def __init__(self, problem: Problem, updates: PlainUpdates, hands: int, rows: int) -> None:
        self._rows, self._updates = rows, updates
        width, trained = problem.layout.size, problem.layout.parameters
        dtype = problem.layout.dtype
        self.start, self.models = _shared(rows, width, dtype), _shared(rows, width, dtype)
        self._anchor = _shared(rows, width, dtype)
        self._shift = _shared(rows, trained, dtype)
        self._kept = {name: _shared(rows, trained, dtype) for name in problem.local.keeps}
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
        flags = (work.anchor is not None, work.shift is not None, kept is None)
        asked = [work.clients, work.first, work.last]
        asked.append(np.full(count, -1) if place is None else place)
        asked += [np.full(count, flag, dtype=np.int64) for flag in flags]
        losses = work.no_losses()
        for part in self._in_order(_cut(count, len(self._pipes)), np.stack(asked), losses):
            if sums is not None:
                own = Sums(sums.rows, sums.to[part], sums.weights[part])
                own.add(self.models[int(part[0]) : int(part[-1]) + 1])
        for name, rows in self._kept.items():
            if kept is not None:
                kept[name].copy_(rows[:count])
        return losses

    def _in_order(
        self, parts: Sequence[Indices], asked: Indices, losses: NDArray[np.float64]
    ) -> Iterator[Indices]:
        """Who is done gets the next part; parts come out in their order, while others train."""
        left, busy, done = list(range(len(parts))), {}, set()
        for pipe in self._pipes[: len(left)]:
            busy[pipe] = self._ask(pipe, left.pop(0), parts, asked)
        following = 0
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)  # noqa: S101 - nothing else was waited for
                number = busy.pop(ready)
                told = self._answer(ready, len(parts[number]))
                losses[parts[number], : told.shape[1]] = told
                done.add(number)
                if left:
                    busy[ready] = self._ask(ready, left.pop(0), parts, asked)
            while following in done:
                yield parts[following]
                following += 1

    def _ask(self, pipe: Connection, number: int, parts: Sequence[Indices], asked: Indices) -> int:
        part = parts[number]
        try:
            pipe.send_bytes(np.concatenate([part[None], asked[:, part]]).tobytes())
        except OSError:
            raise RunError("a process that trains clients was lost") from None
        return number

    def _answer(self, pipe: Connection, count: int) -> NDArray[np.float64]:
        try:
            said = pipe.recv_bytes()
        except (EOFError, OSError):
            raise RunError("a process that trains clients was lost") from None
        if said[:1] == FAILED:
            raise RuntimeError(said[1:].decode())
        return np.frombuffer(said[1:]).reshape(count, -1)

    def _serve(self, pipe: Connection, others: list[Connection]) -> None:
        """The other process: it ends when this one is gone; Ctrl-C is this one's to answer."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            other.close()
        torch.set_num_threads(1)
        while True:
            try:
                asked = np.frombuffer(pipe.recv_bytes(), dtype=np.int64).reshape(8, -1).copy()
            except (EOFError, OSError):
                return
            pipe.send_bytes(self._train(asked))

    def _train(self, asked: Indices) -> bytes:
        part, clients, first, last, place, anchored, shifted, fresh = asked
        rows = slice(int(part[0]), int(part[-1]) + 1)
        if place[0] >= 0:
            _copy_rows(self.start, place, self.models[rows])
        kept = None if fresh[0] else {name: own[rows] for name, own in self._kept.items()}
        anchor = self._anchor[rows] if anchored[0] else None
        shift = self._shift[rows] if shifted[0] else None
        work = Work(clients, first, last, anchor, shift)
        try:
            losses = self._updates.carry_out(self.models[rows], kept, work)
        except Exception as problem:
            notes = ", ".join(getattr(problem, "__notes__", []))
            return FAILED + f"{type(problem).__name__}: {problem} ({notes})".encode()
        return DONE + losses.tobytes()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


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
    size = max(1, rows * columns) * torch.empty(0, dtype=dtype).element_size()
    memory = mmap.mmap(-1, size)
    return torch.frombuffer(memory, dtype=dtype)[: rows * columns].view(rows, columns)
