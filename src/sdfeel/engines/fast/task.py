"""What the threads of one call share: clients, their data, and the rows they begin and end at.

C believes what it gets. Everything is looked at here first: kinds, shapes, that every index lies
inside, and that no row is read by one client while another one writes to it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.algorithm.randomness import MODEL, seeds
from sdfeel.errors import InputError

from .rule import Rule

Array = NDArray[Any] | torch.Tensor
Integers = NDArray[np.int64]
Rows = tuple[Array, Integers]  # a matrix of models and, for each client, one of its rows
Sums = tuple[Array, Integers, NDArray[np.float64]]  # ... and what the client's model counts there


def pointer(array: NDArray[Any] | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def as_array(
    name: str, value: Array, kind: type[np.generic], length: int | None = None
) -> NDArray[Any]:
    """`value` as a contiguous array of `kind`, never a copy: it may be written to."""
    array = value.detach().numpy() if isinstance(value, torch.Tensor) else value
    if array.dtype != kind or not array.flags.c_contiguous:
        remedy = f"must be a contiguous array of {np.dtype(kind).name}"
        raise InputError(name, f"{array.dtype}{list(array.shape)}", remedy)
    if length is not None and array.size != length:
        raise InputError(name, list(array.shape), f"must hold {length} elements")
    return array


class _Rows(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_void_p), ("row", ctypes.c_void_p)]


_WHERE = (
    "start",
    "out",
    "anchor",
    "shift",
    "common",
    "velocity",
    "second",
    "origin",
    "control",
    "sums",
)
_WRITTEN = ("out", "velocity", "second", "control", "sums")


class Task(ctypes.Structure):
    """The struct `Task` of driver.h."""

    _fields_ = [
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("next", "stop", "order", "client", "id", "first")),
        *((name, ctypes.c_void_p) for name in ("last", "inputs", "table", "targets", "offset")),
        ("index", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("batch_size", ctypes.c_int64),
        ("rates", ctypes.c_void_p),
        ("first_rate", ctypes.c_int64),
        *((name, _Rows) for name in _WHERE),
        *((name, ctypes.c_void_p) for name in ("weight", "turn", "turns", "whole", "empty")),
        *((name, ctypes.c_double) for name in ("weight_decay", "prox", "momentum", "reach")),
        ("nesterov", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("clip", "beta1", "beta2", "eps", "decoupled")),
        ("steps", _Rows),
        ("seeds", ctypes.c_void_p),
        ("losses", ctypes.c_void_p),
        ("columns", ctypes.c_int64),
    ]


@lru_cache(16)  # it is the same in every round, as long as everybody is there
def _turns(rows: bytes, threads: int) -> tuple[Integers, Integers, Integers]:
    """For each client how many add to the same sum before it, and how many at all; and an order to
    take clients in.

    rows  of the sums that clients are added to, an int64 each

    Threads work on different sums where there are enough: then none waits for another's turn.
    """
    index = np.frombuffer(rows, dtype=np.int64)
    _, group, sizes = np.unique(index, return_inverse=True, return_counts=True)
    by_group = np.argsort(group, kind="stable")
    turn = np.empty(len(index), dtype=np.int64)
    begins = np.searchsorted(group[by_group], np.arange(group.max(initial=-1) + 1))
    turn[by_group] = np.arange(len(index)) - begins[group[by_group]]
    return turn, sizes[group], np.lexsort((group, turn, group // threads))


@dataclass
class Arguments:
    """The checked arguments of one call of `local_updates`, with all that C has pointers to."""

    real: type[np.floating[Any]]
    parameters: int
    task: Task = field(default_factory=Task)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    longest: int = 1  # of a batch

    def hold(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        self.arrays[name] = array
        setattr(self.task, name, array.ctypes.data)
        return array

    def data(
        self,
        x: NDArray[Any],
        table: NDArray[Any],
        y: NDArray[Any],
        samples: int,
        offsets: Integers,
        clients: Integers,
        client_ids: Integers,
        batch_size: int,
        seed: int,
        index: Integers | None = None,
    ) -> None:
        """Set whose samples lie where, and how batches are drawn from them.

        Of the bounds only those are looked at that count here: there may be a million.

        index  where the samples stand, if bounds are positions in it; it was looked at before
        """
        bounds = self.hold("offset", np.ascontiguousarray(offsets, dtype=np.int64))
        listed = self.hold("client", np.ascontiguousarray(clients, dtype=np.int64))
        ids = self.hold("id", np.ascontiguousarray(client_ids, dtype=np.int64))
        known = samples if index is None else len(self.hold("index", index))
        if bounds.ndim != 1 or not len(bounds):
            raise InputError("offsets", bounds.shape, "must be a list of bounds")
        last = len(bounds) - 1
        if listed.ndim != 1 or ((listed < 0) | (listed >= last)).any():
            raise InputError("clients", clients, f"must be numbers from 0 to {last - 1}")
        if ids.shape != listed.shape:
            raise InputError("client_ids", len(ids), f"must be {len(listed)}, one for each client")
        begins, ends = bounds[listed], bounds[listed + 1]
        if ((begins < 0) | (ends > known)).any():
            raise InputError("offsets", len(bounds), f"must bound parts of {known} samples")
        sizes = ends - begins
        if (sizes < 1).any():
            raise InputError("offsets", int(sizes.min()), "every client must hold a sample")
        if batch_size < 1:
            raise InputError("batch_size", batch_size, "must be 1 or more")
        self.longest = int(min(batch_size, sizes.max(initial=1)))
        self.hold("inputs", x)
        self.hold("table", table)
        self.hold("targets", y)
        self.task.count, self.task.batch_size, self.task.seed = len(listed), batch_size, seed

    def iterations(
        self, first: Integers, last: Integers, rates: NDArray[np.float64], first_rate: int
    ) -> None:
        """Which iterations each client carries out, and their rates."""
        count = int(self.task.count)
        begins = self.hold("first", np.ascontiguousarray(first, dtype=np.int64))
        ends = self.hold("last", np.ascontiguousarray(last, dtype=np.int64))
        given = self.hold("rates", np.ascontiguousarray(rates, dtype=np.float64))
        if begins.shape != (count,) or ends.shape != (count,):
            raise InputError("first", list(begins.shape), f"first and last must be of {count}")
        steps = ends - begins + 1
        if (steps < 0).any():
            raise InputError("last", int(ends[steps < 0][0]), "must not lie before first - 1")
        busy = steps > 0
        if given.ndim != 1 or (
            busy.any()
            and (begins[busy].min() < first_rate or ends[busy].max() >= first_rate + len(given))
        ):
            remedy = f"must cover all iterations from first_rate = {first_rate} on"
            raise InputError("rates", list(given.shape), remedy)
        self.task.first_rate = first_rate
        self.task.columns = int(steps.max(initial=0))
        self.hold("losses", np.full((count, self.task.columns), np.nan))

    def rows(self, **given: Rows | None) -> None:
        """Matrices and rows by name: those of `_WRITTEN` are written, the others read."""
        for name, rows in given.items():
            if rows is not None:
                self._rows(name, *rows)
        for name in ("out", "velocity", "second", "control"):
            index = self.arrays.get(f"{name}.row")
            if index is not None and len(np.unique(index)) < len(index):
                raise InputError(name, index, "must be a row of its own for every client")
        self._check_apart()

    def sum_up(
        self,
        sums: Sums | None,
        threads: int,
        whole: NDArray[np.bool_] | None = None,
        empty: NDArray[np.bool_] | None = None,
    ) -> None:
        """Set where models are added up; without it clients are taken in their order.

        whole  whether a client's sum has all that it will ever have once this call is over
        empty  whether it has nothing when this call begins, whatever stands there
        """
        count = int(self.task.count)
        turn, order, complete = np.zeros(0, np.int64), np.arange(count), np.zeros(count, np.int64)
        for name, flags in (("whole", whole), ("empty", empty)):
            if flags is not None and (sums is None or np.shape(flags) != (count,)):
                raise InputError(name, np.shape(flags), f"must be {count}, and needs sums")
        if sums is not None:
            matrix, index, weights = sums
            self._rows("sums", matrix, index)
            given = self.hold("weight", np.ascontiguousarray(weights, dtype=np.float64))
            if given.shape != (count,):
                raise InputError("sums", list(given.shape), f"must have {count} weights")
            turn, sizes, order = _turns(self.arrays["sums.row"].tobytes(), threads)
            complete = complete if whole is None else np.where(whole, sizes, 0)
            self.hold("turns", np.zeros(len(matrix), dtype=np.int64))
            self._check_apart()
        self.hold("turn", turn)
        self.hold("whole", complete)
        none = np.zeros(count, np.int64)
        self.hold("empty", none if empty is None else empty.astype(np.int64))
        self.hold("order", np.ascontiguousarray(order, dtype=np.int64))
        for name in ("next", "stop"):
            self.hold(name, np.zeros(1, dtype=np.int64))

    def by(self, rule: Rule) -> None:
        self.task.weight_decay, self.task.prox = rule.weight_decay, rule.prox
        self.task.momentum, self.task.nesterov = rule.momentum, int(rule.nesterov)
        self.task.clip = rule.clip
        if rule.adam:
            for name in ("beta1", "beta2", "eps", "decoupled"):
                setattr(self.task, name, getattr(rule.adam, name))

    def draw_dropout(self, seed: int) -> None:
        """Set the seeds of dropout, those of every engine: by client and iteration."""
        first, columns = self.arrays["first"], int(self.task.columns)
        begin, end = int(first.min(initial=0)), int(first.max(initial=0)) + columns
        drawn = seeds(seed, self.arrays["id"], np.arange(begin, end), MODEL)
        clients, steps = np.arange(len(first))[:, None], np.arange(columns)
        self.hold("seeds", drawn[clients, first[:, None] - begin + steps].astype(np.uint32))

    def counts(self, steps: Rows | None) -> None:
        """Set how many steps of Adam each client has made; that is counted on."""
        if steps is None:
            return
        matrix, index = steps
        array = as_array("steps", matrix, self.real)
        rows = np.ascontiguousarray(index, dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 1 or rows.shape != (self.task.count,):
            raise InputError("steps", list(array.shape), "must be a number for each client")
        if ((rows < 0) | (rows >= len(array))).any() or len(np.unique(rows)) < len(rows):
            raise InputError("steps", index, f"must be different rows of {len(array)}")
        if not array.flags.writeable:
            raise InputError("steps", "a matrix that cannot be written", "must be writable")
        self.arrays["steps.rows"], self.arrays["steps.row"] = array, rows
        self.task.steps = _Rows(array.ctypes.data, rows.ctypes.data)

    def _rows(self, name: str, matrix: Array, index: Integers) -> None:
        array = as_array(name, matrix, self.real)
        if array.ndim != 2 or array.shape[1] != self.parameters:
            raise InputError(name, list(array.shape), f"must be (rows, {self.parameters})")
        rows = np.ascontiguousarray(index, dtype=np.int64)
        if rows.shape != (self.task.count,):
            raise InputError(name, list(rows.shape), f"must be {self.task.count} rows, one each")
        if ((rows < 0) | (rows >= len(array))).any():
            raise InputError(name, index, f"must be rows of {len(array)}")
        if name in _WRITTEN and not array.flags.writeable:
            raise InputError(name, "a matrix that cannot be written", "must be writable")
        self.arrays[f"{name}.rows"], self.arrays[f"{name}.row"] = array, rows
        setattr(self.task, name, _Rows(array.ctypes.data, rows.ctypes.data))

    def _check_apart(self) -> None:
        """A row that is written is read by nobody but its own client."""
        present = [name for name in _WHERE if f"{name}.rows" in self.arrays]
        for written in set(_WRITTEN) & set(present):
            for other in set(present) - {written}:
                mine, theirs = self.arrays[f"{written}.rows"], self.arrays[f"{other}.rows"]
                if not np.may_share_memory(mine, theirs):
                    continue
                readers_of = {"out": ("start", "anchor", "shift"), "control": ("shift",)}
                same = other in readers_of.get(written, ())
                if same and mine.ctypes.data == theirs.ctypes.data and mine.shape == theirs.shape:
                    writer = np.full(len(mine), -1)
                    writer[self.arrays[f"{written}.row"]] = np.arange(self.task.count)
                    by = writer[self.arrays[f"{other}.row"]]
                    if ((by < 0) | (by == np.arange(self.task.count))).all():
                        continue
                raise InputError(
                    written, f"rows in the memory of {other}", "must not be read by other clients"
                )
