"""The loop engine: the plain loop over clients, in one process for each core.

What many models do best: operations too large or too few for vectorising over clients to pay.
Processes, because Python itself is half of a small step, and forked, so that any model, loss and
data that this process holds is there without being sent. Models go through memory that both sides
see. A client's step uses one core, whatever their number, so the bits are those of `reference`.
"""

from __future__ import annotations

import mmap
import multiprocessing
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.errors import RunError
from sdfeel.simulation.engines.engine import Engine, Work
from sdfeel.simulation.engines.plain import PlainUpdates, one_thread
from sdfeel.simulation.problem import Problem

__all__ = ["LoopEngine"]

# Parts into which the clients of a call are cut for each process: the last to end is soon done.
PARTS = 4
DONE, FAILED = b"d", b"f"


class LoopEngine(Engine):
    """It uses as many processes as torch is set to use threads."""

    name = "loop"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._updates = PlainUpdates(problem)
        self._crew: _Crew | None = None

    def local_updates(self, models: Tensor, kept: Rows | None, work: Work) -> NDArray[np.float64]:
        hands = min(torch.get_num_threads(), len(work.clients))
        if hands <= 1 or self.problem.device.type != "cpu":
            with one_thread():
                return self._updates.carry_out(models, kept, work)
        if self._crew is None or not self._crew.suffices(hands, len(models)):
            self.close()
            self._crew = _Crew(self.problem, self._updates, torch.get_num_threads(), len(models))
        return self._crew.carry_out(models, kept, work)

    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        return self._updates.predict(model, inputs)

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()
            self._crew = None


class _Crew:
    """Processes, and the memory that they share with this one."""

    def __init__(self, problem: Problem, updates: PlainUpdates, hands: int, rows: int) -> None:
        self._rows = rows
        self._local = problem.local
        width, trained = problem.layout.size, problem.layout.parameters
        dtype = problem.layout.dtype
        self._models, self._anchor = _shared(rows, width, dtype), None
        if problem.local.prox:
            self._anchor = _shared(rows, width, dtype)
        self._shift = _shared(rows, trained, dtype)
        self._kept = {name: _shared(rows, trained, dtype) for name in problem.local.keeps}
        fork = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(hands):
            ours, theirs = fork.Pipe()
            others = [*self._pipes, ours]
            process = fork.Process(target=self._serve, args=(theirs, others, updates), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def suffices(self, hands: int, rows: int) -> bool:
        return rows <= self._rows and hands <= len(self._pipes)

    def carry_out(self, models: Tensor, kept: Rows | None, work: Work) -> NDArray[np.float64]:
        count = len(models)
        self._models[:count] = models
        for name, rows in self._kept.items():
            rows[:count] = 0 if kept is None else kept[name]
        if work.anchor is not None and self._anchor is not None:
            self._anchor[:count] = work.anchor
        if work.shift is not None:
            self._shift[:count] = work.shift
        losses = work.no_losses()
        cuts = np.array_split(np.arange(count), min(count, PARTS * len(self._pipes)))
        self._share_out([cut for cut in cuts if len(cut)], work, losses)
        models.copy_(self._models[:count])
        for name, rows in self._kept.items():
            if kept is not None:
                kept[name].copy_(rows[:count])
        return losses

    def _share_out(
        self, parts: Sequence[NDArray[np.int64]], work: Work, losses: NDArray[np.float64]
    ) -> None:
        """Who is done gets the next part."""
        left, busy = list(parts), {}
        for pipe in self._pipes[: len(left)]:
            busy[pipe] = self._ask(pipe, left.pop(0), work)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)  # noqa: S101 - nothing else was waited for
                part = busy.pop(ready)
                told = self._answer(ready, len(part))
                losses[part, : told.shape[1]] = told
                if left:
                    busy[ready] = self._ask(ready, left.pop(0), work)

    def _ask(self, pipe: Connection, part: NDArray[np.int64], work: Work) -> NDArray[np.int64]:
        numbers = [part, work.clients[part], work.first[part], work.last[part]]
        shifted = np.full(len(part), work.shift is not None, dtype=np.int64)
        try:
            pipe.send_bytes(np.stack([*numbers, shifted]).tobytes())
        except OSError:
            raise RunError("a process that trains clients was lost") from None
        return part

    def _answer(self, pipe: Connection, count: int) -> NDArray[np.float64]:
        try:
            said = pipe.recv_bytes()
        except (EOFError, OSError):
            raise RunError("a process that trains clients was lost") from None
        if said[:1] == FAILED:
            raise RuntimeError(said[1:].decode())
        return np.frombuffer(said[1:]).reshape(count, -1)

    def _serve(self, pipe: Connection, others: list[Connection], updates: PlainUpdates) -> None:
        """The other process: it ends when this one is gone; Ctrl-C is this one's to answer."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            other.close()
        torch.set_num_threads(1)
        while True:
            try:
                asked = np.frombuffer(pipe.recv_bytes(), dtype=np.int64).reshape(5, -1)
            except (EOFError, OSError):
                return
            pipe.send_bytes(self._train(asked, updates))

    def _train(self, asked: NDArray[np.int64], updates: PlainUpdates) -> bytes:
        part, clients, first, last, shifted = asked
        rows = slice(int(part[0]), int(part[-1]) + 1)
        anchor = None if self._anchor is None else self._anchor[rows]
        shift = self._shift[rows] if shifted[0] else None
        kept = {name: own[rows] for name, own in self._kept.items()}
        work = Work(clients, first, last, anchor, shift)
        try:
            losses = updates.carry_out(self._models[rows], kept, work)
        except Exception as problem:
            return FAILED + f"{type(problem).__name__}: {problem}".encode()
        return DONE + losses.tobytes()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


def _shared(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Memory that forked processes see; it takes room only once it is written to."""
    size = max(1, rows * columns) * torch.empty(0, dtype=dtype).element_size()
    memory = mmap.mmap(-1, size)
    return torch.frombuffer(memory, dtype=dtype)[: rows * columns].view(rows, columns)
