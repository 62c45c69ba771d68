"""A network as compiled code, called with arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from sdfeel.errors import InputError

from . import cache
from .compiler import compile_text, find_toolchain
from .errors import Unsupported
from .plan import Plan, make_plan
from .proof import Proof
from .source import generate

__all__ = ["CompiledModel", "compile_model", "loss_name"]

Array = NDArray[Any] | torch.Tensor

_TYPES: dict[torch.dtype, type[np.floating[Any]]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
}


def loss_name(loss: object) -> str:
    """`cross-entropy` or `mse`, for a name, a function of torch or a loss module as it comes."""
    if loss in ("cross-entropy", functional.cross_entropy):
        return "cross-entropy"
    if loss in ("mse", functional.mse_loss):
        return "mse"
    if type(loss) is nn.CrossEntropyLoss:
        if (
            loss.weight is None
            and loss.reduction == "mean"
            and loss.ignore_index == -100
            and loss.label_smoothing == 0
        ):
            return "cross-entropy"
        raise Unsupported(f"{loss} with options other than the defaults")
    if type(loss) is nn.MSELoss:
        if loss.reduction == "mean":
            return "mse"
        raise Unsupported(f"{loss} with reduction {loss.reduction!r}")
    raise Unsupported(f"loss {getattr(loss, '__name__', loss)!r} is not supported")


def _pointer(array: NDArray[Any] | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


class CompiledModel:
    """One network, one loss, one precision. Calls may come from several threads at once."""

    proof: dict[str, Any]  # compiler, version, target, optimise, verdict, checks (batch sizes)
    from_cache: bool

    def __init__(
        self,
        plan: Plan,
        loss: str,
        dtype: torch.dtype,
        sample_shape: tuple[int, ...],
        library: ctypes.CDLL,
    ) -> None:
        self.parameters = plan.parameters
        self.outputs = plan.shapes[-1].elements
        self.dtype = dtype
        self.loss = loss
        self._real = _TYPES[dtype]
        self._target: type[np.generic] = np.int64 if loss == "cross-entropy" else self._real
        self._sample = plan.sample
        self.sample_shape = sample_shape
        self._library = library
        for name in ("work_bytes", "block_size", "vector_length", "draw_batch"):
            getattr(self._library, name).restype = ctypes.c_int64
        self._work_bytes = int(self._library.work_bytes())
        self.block = int(self._library.block_size())
        self.lanes = int(self._library.vector_length())
        self._idle: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_size = 0

    @contextmanager
    def _work(self) -> Iterator[ctypes.c_void_p]:
        """Room for one thread, kept for the next call: fresh memory would cost page faults."""
        with self._lock:
            room = self._idle.pop() if self._idle else None
        if room is None:
            room = np.zeros(self._work_bytes + 64, dtype=np.uint8)
            room = room[-room.ctypes.data % 64 :]
            self._library.start(_pointer(room))
        try:
            yield _pointer(room)
        finally:
            with self._lock:
                self._idle.append(room)

    def _spread(self, threads: int, task: Callable[[], None]) -> None:
        """Run `task` once in each of `threads` threads; they share the work by a counter."""
        if threads <= 1:
            task()
            return
        with self._lock:
            if self._pool is None or self._pool_size < threads:
                self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sdfeel-fast")
                self._pool_size = threads
            pool = self._pool
        for future in [pool.submit(task) for _ in range(threads)]:
            future.result()

    def _array(
        self, name: str, value: Array, kind: type[np.generic], length: int | None = None
    ) -> NDArray[Any]:
        """`value` as a contiguous array of `kind`, never a copy: it may be written to."""
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else value
        if array.dtype != kind or not array.flags.c_contiguous:
            remedy = f"must be a contiguous array of {np.dtype(kind).name}"
            raise InputError(name, f"{array.dtype}{list(array.shape)}", remedy)
        if length is not None and array.size != length:
            raise InputError(name, list(array.shape), f"must hold {length} elements")
        return array

    def _data(self, inputs: Array, targets: Array) -> tuple[NDArray[Any], NDArray[Any], int]:
        x = self._array("inputs", inputs, self._real, len(inputs) * self._sample)
        size = 1 if self.loss == "cross-entropy" else self.outputs
        return x, self._array("targets", targets, self._target, len(inputs) * size), len(inputs)

    def _refuse(self, status: int) -> None:
        if status:
            raise InputError("targets", "a label", f"labels must lie in 0 to {self.outputs - 1}")

    def local_updates(
        self,
        models: Array,
        clients: NDArray[np.int64],
        client_ids: NDArray[np.int64],
        inputs: Array,
        targets: Array,
        offsets: NDArray[np.int64],
        *,
        seed: int,
        first: int,
        last: int,
        batch_size: int,
        lr: float,
        threads: int,
    ) -> NDArray[np.float64]:
        """Iterations first to last of the local updates, eq. (2), of the rows `clients`.

        Rows of `models` are updated in place. Client i's samples are offsets[i] to offsets[i + 1];
        its batches are those of (seed, client_ids, k). Returns the mean mini-batch loss before each
        update, of shape (len(clients), last - first + 1).
        """
        rows = self._array("models", models, self._real)
        if rows.ndim != 2 or rows.shape[1] != self.parameters:
            raise InputError("models", list(rows.shape), f"must be (clients, {self.parameters})")
        x, y, samples = self._data(inputs, targets)
        clients = np.ascontiguousarray(clients, dtype=np.int64)
        ids = np.ascontiguousarray(client_ids, dtype=np.int64)
        bounds = np.ascontiguousarray(offsets, dtype=np.int64)
        if len(ids) != len(clients):
            raise InputError("client_ids", len(ids), f"must be {len(clients)}, one for each client")
        if len(bounds) != len(rows) + 1 or bounds[0] < 0 or bounds[-1] > samples:
            raise InputError("offsets", len(bounds), "must bound the samples of every row")
        if len(clients) and (clients.min() < 0 or clients.max() >= len(rows)):
            raise InputError("clients", clients.max(), f"must be rows of {len(rows)} models")
        sizes = np.diff(bounds)
        if (sizes < 0).any() or (sizes[clients] < 1).any():
            raise InputError("offsets", int(sizes.min()), "every client must hold a sample")
        if batch_size < 1 or last < first:
            raise InputError("batch_size", batch_size, "must be 1 or more, for first <= last")
        losses = np.full((len(clients), last - first + 1), np.nan)
        counter = np.zeros(1, dtype=np.int64)
        longest = int(min(batch_size, sizes.max(initial=1)))

        def task() -> None:
            chosen = np.empty(longest, dtype=np.int64)
            with self._work() as work:
                status = self._library.local_updates(
                    work,
                    _pointer(rows),
                    _pointer(clients),
                    _pointer(ids),
                    ctypes.c_int64(len(clients)),
                    _pointer(counter),
                    _pointer(x),
                    _pointer(y),
                    _pointer(bounds),
                    ctypes.c_uint64(seed),
                    ctypes.c_int64(first),
                    ctypes.c_int64(last),
                    ctypes.c_int64(batch_size),
                    ctypes.c_double(lr),
                    _pointer(chosen),
                    _pointer(losses),
                )
            self._refuse(status)

        self._spread(min(threads, len(clients)), task)
        return losses

    def gradient(self, model: Array, inputs: Array, targets: Array) -> tuple[float, NDArray[Any]]:
        """The mean loss over all samples and its gradient, in the order of the parameters."""
        vector = self._array("model", model, self._real, self.parameters)
        x, y, samples = self._data(inputs, targets)
        out = np.empty(self.parameters, dtype=self._real)
        mean = ctypes.c_double()
        with self._work() as work:
            status = self._library.gradient(
                work,
                _pointer(vector),
                _pointer(x),
                _pointer(y),
                ctypes.c_int64(samples),
                ctypes.byref(mean),
                _pointer(out),
            )
        self._refuse(status)
        return mean.value, out

    def forward(self, model: Array, inputs: Array, threads: int = 1) -> NDArray[Any]:
        """The network's outputs, of shape (samples, outputs)."""
        return self._evaluate(model, inputs, None, threads)[1]

    def evaluate(
        self, model: Array, inputs: Array, targets: Array, threads: int = 1
    ) -> tuple[float, int]:
        """The mean loss, and how many samples have their largest output at the label (else 0)."""
        mean, outputs = self._evaluate(model, inputs, targets, threads)
        if self.loss != "cross-entropy":
            return mean, 0
        labels = targets.numpy() if isinstance(targets, torch.Tensor) else targets
        return mean, int((outputs.argmax(axis=1) == labels.reshape(-1)).sum())

    def _evaluate(
        self, model: Array, inputs: Array, targets: Array | None, threads: int
    ) -> tuple[float, NDArray[Any]]:
        vector = self._array("model", model, self._real, self.parameters)
        samples = len(inputs)
        x = self._array("inputs", inputs, self._real, samples * self._sample)
        y = None if targets is None else self._data(inputs, targets)[1]
        blocks = -(-samples // self.block)
        losses = np.zeros(blocks)
        outputs = np.empty((samples, self.outputs), dtype=self._real)
        counter = np.zeros(1, dtype=np.int64)

        def task() -> None:
            with self._work() as work:
                status = self._library.evaluate(
                    work,
                    _pointer(vector),
                    _pointer(x),
                    _pointer(y),
                    ctypes.c_int64(samples),
                    _pointer(counter),
                    _pointer(losses),
                    _pointer(outputs),
                )
            self._refuse(status)

        self._spread(min(threads, blocks), task)
        return float(losses.sum() / max(samples, 1)), outputs


def compile_model(
    module: nn.Module,
    loss: object,
    sample_shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    optimise: str = "-O3",
    target: str = "native",
    batch_size: int | None = None,
) -> CompiledModel:
    """Compile `module` for inputs of `sample_shape`, or say by `Unsupported` why it cannot be.

    Only the structure of the module counts: its weights come with every call, as the concatenation
    of `module.parameters()` flattened in order. What comes back agrees with autograd on this
    machine, for batches of `batch_size` among others; once found out, that is known for good.
    """
    if dtype not in _TYPES:
        raise Unsupported(f"{dtype}: only float32 and float64 are supported")
    shape, name = tuple(sample_shape), loss_name(loss)
    plan = make_plan(module, shape)
    text = generate(plan, name, "float64" if dtype == torch.float64 else "float32")
    toolchain = find_toolchain(optimise, target)
    key = toolchain.key(text)
    kept = cache.read(key)
    proof = Proof.from_notes(kept.notes) if kept else None
    if kept is None or proof is None:
        kept, proof = None, Proof.of(toolchain)
    library = kept.library if kept else compile_text(text, toolchain)
    if library is None:
        raise Unsupported(proof.refusal)
    model = CompiledModel(plan, name, dtype, shape, cache.load(library))
    extended = proof.extended(model, module, batch_size)
    if extended != proof:
        cache.keep(key, library if extended.agrees else None, extended.notes)
    if not extended.agrees:
        raise Unsupported(extended.refusal)
    model.proof, model.from_cache = extended.notes, kept is not None
    return model
