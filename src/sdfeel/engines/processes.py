"""Processes that train clients, and the memory that they share with the one that asks them.

They are forked: any model, loss and data that this process holds is there without being sent. What
a call asks for and the models of clients lie in memory that all see. The numbers of a call's parts
lie in a pipe: a process that is free takes the next one, and none waits for this process, which
needs a core itself to hear of it.

The executors of `concurrent.futures` and `torch.multiprocessing`, over the same memory, were tried
in its place. They hand out every part through a thread and a queue of this process, at a tenth of a
millisecond for each: measurably slower wherever a period is short.
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

from sdfeel.engines.draws import Draws
from sdfeel.engines.engine import Indices, Sums, Work
from sdfeel.engines.idle_cores import free_cores, still
from sdfeel.engines.plain import PlainUpdates, one_thread
from sdfeel.engines.problem import Problem
from sdfeel.errors import RunError

__all__ = ["Processes"]

# A process that is free takes this share of what is left, divided by their number: few parts, each
# of which has a price, and the last ones small, so that all end together.
SHARE = 0.75
END = 2**16 - 1  # in place of the number of a part: there will be no other
DONE, FAILED = b"d", b"f"
LOOK_UP = 500  # milliseconds after which to ask whether training is to stop
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc
ALIGNED = 64  # bytes at a multiple of which a row begins: a processor's widest vector


@dataclass(frozen=True, eq=False)
class _Call:
    """What is asked for, as one of the processes sees it."""

    number: int
    parts: Sequence[Indices]
    work: Work
    draws: Draws


class Processes:
    """As many as there are hands, for calls of at most so many clients.

    start   models to begin from; models: those of clients, a row each
    """

    def __init__(self, problem: Problem, updates: PlainUpdates, hands: int, clients: int) -> None:
        self._clients, self._updates, self._hands = clients, updates, hands
        self._working = False
        width, chain, dtype = problem.layout.size, problem.chain, problem.layout.dtype
        trained = problem.layout.parameters
        self.start = _shared(clients, width, dtype)
        self.models = _shared(clients, width, dtype)
        widths = {name: row.width or trained for name, row in chain.rows.items()}
        widths |= dict.fromkeys(chain.shared, trained)
        self._rows = {name: _shared(clients, values, dtype) for name, values in widths.items()}
        self._asked: Indices = _shared(5, max(clients, 3), torch.int64).numpy()
        self._given: Indices = _shared(1, len(widths) + 1, torch.int64).numpy()[0]
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

    def suffices(self, hands: int, clients: int) -> bool:
        return clients <= self._clients and hands == len(self._pipes)

    def carry_out(self, work: Work, sums: Sums | None = None) -> NDArray[np.float64]:
        """Train into `models`, which are added up if there are sums."""
        count = len(work.clients)
        self._ask(work)
        losses = work.no_losses()
        free_cores()
        self._working = True
        try:
            with one_thread():  # a second one would take the core of a process
                for part in self._in_order(_cut(count, self._hands), work, losses):
                    if sums is not None:
                        of_part = Sums(sums.rows, sums.to[part], sums.weights[part], sums.empty)
                        of_part.add(self.models[_rows(part)])
        except BaseException:
            self.close()
            raise
        self._working = False
        for name, rows in work.rows.items():
            rows.copy_(self._rows[name][:count])
        return losses

    def _ask(self, work: Work) -> None:
        """Lay out a call where all processes see it."""
        count = len(work.clients)
        start, begin = work.start
        rows, place = np.unique(begin, return_inverse=True)
        for model, row in zip(self.start, rows.tolist(), strict=False):
            model.copy_(start[row])
        for name, values in work.rows.items():
            self._rows[name][:count] = values
        for name, values in work.laid_out.items():
            self._rows[name][:count] = values
        self._given[:-1] = [name in work.rows or name in work.shared for name in self._rows]
        self._asked[0, :2] = self._asked[0, 0] + 1, count
        self._asked[1:, :count] = work.clients, work.first, work.last, place

    def _in_order(
        self, parts: Sequence[Indices], work: Work, losses: NDArray[np.float64]
    ) -> Iterator[Indices]:
        """Parts come out in their order, while others train."""
        self._write(range(len(parts)))
        done, following = set[int](), 0
        while following < len(parts):
            work.look_up()
            for place, _ in self._answers.poll(LOOK_UP):
                number, answer = _answer(self._pipes[place])
                made = answer.reshape(len(parts[number]), -1)
                losses[parts[number], : made.shape[1]] = made
                done.add(number)
            while following in done:
                yield parts[following]
                following += 1

    def _write(self, numbers: Sequence[int]) -> None:
        os.write(self._numbers[1], np.array(numbers, dtype=np.uint16).tobytes())

    def close(self) -> None:
        """Tell processes that wait to end; terminate those that work, because their call failed."""
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
        """Train parts until told to end, or until the parent is gone; Ctrl-C is the parent's."""
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
        """Wait for the number of a part that no other process has taken."""
        number = os.read(self._numbers[0], 2)
        return int.from_bytes(number, sys.byteorder) if number else END

    def _heard(self) -> _Call:
        number, count = self._asked[0, :2].tolist()
        clients, first, last, place = self._asked[1:, :count].copy()
        given = {
            name: rows[:count]
            for (name, rows), is_given in zip(self._rows.items(), self._given, strict=False)
            if is_given
        }
        chain, each = self._updates.problem.chain, np.arange(count)
        rows = {name: values for name, values in given.items() if name in chain.rows}
        shared = {name: (values, each) for name, values in given.items() if name in chain.shared}
        work = Work(clients, first, last, (self.start, place), rows, shared)
        return _Call(number, _cut(count, self._hands), work, self._updates.draws(work))

    def _trained(self, call: _Call, number: int) -> bytes:
        """Train a part of a call; return its answer as bytes."""
        part, name = call.parts[number], number.to_bytes(2, sys.byteorder)
        try:
            losses = self._updates.carry_out(self.models, call.work, part, call.draws)
        except Exception as problem:
            notes = ", ".join(getattr(problem, "__notes__", []))
            return name + FAILED + f"{type(problem).__name__}: {problem} ({notes})".encode()
        return name + DONE + losses.tobytes()


def _answer(pipe: Connection) -> tuple[int, NDArray[np.float64]]:
    """Read the number of a part and its losses; raise what went wrong."""
    try:
        answer = pipe.recv_bytes()
    except (EOFError, OSError):
        raise RunError("a process that trains clients was lost") from None
    if answer[2:3] == FAILED:
        raise RuntimeError(answer[3:].decode())
    return int.from_bytes(answer[:2], sys.byteorder), np.frombuffer(answer[3:])


def _keep_memory() -> None:
    """Keep glibc from giving back what a step frees and asking for it in the next.

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
