"""A network as compiled code, called with arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sdfeel.errors import InputError
from sdfeel.trees import Pixels

from . import cache
from .compiler import compile_text, find_toolchain
from .errors import Unsupported
from .losses import LossForm, loss_form
from .outer import OuterLoss
from .plan import Plan, make_plan
from .proof import Proof
from .rule import Rule
from .source import MOST_DRAWN, generate
from .task import Arguments, Array, Rows, Sums, as_array, pointer

Inputs = Array | Pixels

# How many clients go side by side where Python computes the loss, and what memory they may take in
# all threads. More share the price of a call of autograd; fewer stay in the cache.
OUTER_CLIENTS = 16
OUTER_BYTES = 2**29

_TYPES: dict[torch.dtype, type[np.floating[Any]]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
}


class CompiledModel:
    """A network, a loss, a precision, terms of a rule. Calls may come from several threads."""

    proof: dict[str, Any]  # compiler, version, target, optimise, verdict, checks (batch sizes)
    from_cache: bool

    def __init__(
        self,
        plan: Plan,
        loss: LossForm,
        dtype: torch.dtype,
        sample_shape: tuple[int, ...],
        rule: Rule,
        tables: int,
        library: ctypes.CDLL,
    ) -> None:
        self.parameters = plan.parameters
        self.outputs = plan.shapes[-1].elements
        self.dtype = dtype
        self.loss = loss
        self.rule = rule
        self.drops = plan.drops
        self.tables = tables  # of what bytes stand for; 0: inputs are real numbers
        self._real = _TYPES[dtype]
        self._target: type[np.generic] = np.int64 if loss.has_labels else self._real
        self._sample = plan.sample
        self.sample_shape = sample_shape
        self._library = library
        for name in ("work_bytes", "block_size", "vector_length", "paid_at_once", "draw_batch"):
            getattr(self._library, name).restype = ctypes.c_int64
        self._work_bytes = int(self._library.work_bytes())
        self.block = int(self._library.block_size())
        lengths = self._library.vector_length(), self._library.paid_at_once()
        self.lanes, self.at_once = (int(length) for length in lengths)
        self._index: tuple[int, int] | None = None  # the last that was looked at ...
        self._kept_index: NDArray[np.int64] | None = None  # ... which stays, so that no other is it
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
            self._library.start(pointer(room))
        try:
            yield pointer(room)
        finally:
            with self._lock:
                self._idle.append(room)

    def _spread(self, threads: int, task: Callable[[], None]) -> None:
        """Run `task` once in each of `threads` threads, this one among them: it need not be woken.

        They share the work by a counter.
        """
        others = threads - 1
        if others <= 0:
            task()
            return
        with self._lock:
            if self._pool is None or self._pool_size < others:
                self._pool = ThreadPoolExecutor(others, thread_name_prefix="sdfeel-fast")
                self._pool_size = others
            pool = self._pool
        running = [pool.submit(task) for _ in range(others)]
        try:
            task()
        finally:
            wait(running)  # they work on the same arrays
        for future in running:
            future.result()

    def _inputs(self, inputs: Inputs) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs, and the table of what they stand for: empty for real numbers."""
        length = len(inputs) * self._sample
        if not isinstance(inputs, Pixels):
            none = np.zeros(0, dtype=self._real)
            kind = np.uint8 if self.tables else self._real
            return as_array("inputs", inputs, kind, length), none
        table = inputs.table().numpy().astype(self._real)
        if len(table) != self.tables:
            remedy = f"this network was compiled for {self.tables}"
            raise InputError("inputs", f"pixels with {len(table)} scales", remedy)
        return as_array("inputs", inputs.values, np.uint8, length), table

    def _targets(self, targets: Array, samples: int) -> NDArray[Any]:
        size = 1 if self.loss.has_labels else self.outputs
        return as_array("targets", targets, self._target, samples * size)

    def _refuse(self, status: int) -> None:
        if status:
            raise InputError("targets", "a label", f"labels must lie in 0 to {self.outputs - 1}")

    def local_updates(
        self,
        clients: NDArray[np.int64],
        client_ids: NDArray[np.int64],
        inputs: Inputs,
        targets: Array,
        offsets: NDArray[np.int64],
        *,
        seed: int,
        batch_size: int,
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        rates: NDArray[np.float64],
        first_rate: int,
        start: Rows,
        out: Rows | None = None,
        sums: Sums | None = None,
        rule: Rule | None = None,
        anchor: Rows | None = None,
        shift: Rows | None = None,
        common: Rows | None = None,
        velocity: Rows | None = None,
        second: Rows | None = None,
        steps: Rows | None = None,
        origin: Rows | None = None,
        control: Rows | None = None,
        reach: float = 1.0,
        whole: NDArray[np.bool_] | None = None,
        empty: NDArray[np.bool_] | None = None,
        threads: int = 1,
        index: NDArray[np.int64] | None = None,
        outer: OuterLoss | None = None,
    ) -> NDArray[np.float64]:
        """Local updates, eq. (2), of each client from its iteration `first` to its `last`.

        Client c's samples are offsets[c] to offsets[c + 1]; its batches are those of
        (seed, client_ids, k); iteration k has the rate rates[k - first_rate]. Matrices of models
        come with a row for each client:

        - `start`: the model it begins from, of which it takes a copy; clients may share it;
        - `out`: where its model is left, a row of its own; it may be its row of `start`;
        - `sums`: its model times its weight is added there, in the order of `clients` for every
          row whatever the number of threads, eq. (3); it begins at zero where its sum is `empty`;
        - `anchor` (else its row of `start`), `shift` and `velocity` as `Rule` has them;
          without `velocity` it begins at zero and is forgotten; `common` is added to `shift`;
          with `adam` `velocity` is m, `second` is q and `steps` is t, a number for each client;
        - `control`: where its model less its row of `origin`, over `reach`, is added, a row of
          its own; it may be its row of `shift`. Where its sum is `whole` with the clients of this
          call, the sum less `origin`, over `reach`, is taken off again.

        With an `index` offsets are positions in it, and it has the numbers of the samples. With
        `outer` that is the loss, and `targets` are not looked at.

        Returns the mean mini-batch loss before each update, of shape (clients, most iterations),
        NaN beyond a client's own.
        """
        rule = rule or self.rule
        if not self.rule.terms.covers(rule.terms):
            raise InputError("rule", rule, f"must have no terms beyond those of {self.rule}")
        for name, rows, wanted in (
            ("shift", shift, rule.shifted),
            ("common", common, shift is not None),
            ("velocity", velocity, rule.momentum > 0 or rule.adam is not None),
            ("second", second, rule.adam is not None),
            ("steps", steps, rule.adam is not None),
            ("control", control, rule.shifted),
        ):
            if rows is not None and not wanted:
                raise InputError(name, "given", f"is no part of {rule}")
        if (origin is None) != (control is None):
            raise InputError("origin", origin, "goes with control, and control with it")
        call = Arguments(self._real, self.parameters)
        samples = len(inputs)
        labels = self._targets(targets, samples) if outer is None else np.zeros(0, self._target)
        given = (*self._inputs(inputs), labels, samples)
        call.data(
            *given, offsets, clients, client_ids, batch_size, seed, self._known(index, samples)
        )
        call.iterations(first, last, rates, first_rate)
        call.rows(
            start=start, out=out, anchor=anchor, shift=shift, common=common, velocity=velocity,
            second=second, origin=origin, control=control,
        )  # fmt: skip
        call.task.reach = reach
        threads = max(1, min(threads, len(clients)))
        call.sum_up(sums, threads, whole, empty)
        call.by(rule)
        call.counts(steps)
        if self.drops:
            self._check_drawn(call.longest)
            call.draw_dropout(seed)

        def task() -> None:
            chosen = np.empty(call.longest, dtype=np.int64)
            with self._work() as work:
                shared = ctypes.byref(call.task)
                self._refuse(self._library.local_updates(work, shared, pointer(chosen)))

        self._spread(threads, task if outer is None else self._outer_task(call, outer, threads))
        return call.arrays["losses"]

    def _outer_task(self, call: Arguments, outer: OuterLoss, threads: int) -> Callable[[], None]:
        """Return what a thread does with a loss that Python computes: a chunk after the other."""
        order, count = call.arrays["order"], int(call.task.count)
        room = max(1, OUTER_BYTES // (self._work_bytes * threads))
        size = min(OUTER_CLIENTS, room, -(-count // threads))
        chunks = iter([order[at : at + size] for at in range(0, count, size)])
        lock = threading.Lock()

        def task() -> None:
            try:
                while not call.arrays["stop"][0]:
                    with lock:
                        chunk = next(chunks, None)
                    if chunk is None:
                        return
                    self._outer_chunk(call, outer, chunk)
            except BaseException:
                call.arrays["stop"][0] = 1  # others may wait for what this chunk would have added
                raise

        return task

    def _outer_chunk(self, call: Arguments, outer: OuterLoss, chunk: NDArray[np.int64]) -> None:
        """Carry clients from their first to their last iteration, all of them side by side."""
        arrays, width = call.arrays, call.longest
        steps = (arrays["last"] - arrays["first"] + 1)[chunk]
        bounds, places = arrays["offset"], arrays["client"][chunk]
        samples = bounds[places + 1] - bounds[places]
        lengths = np.minimum(samples, int(call.task.batch_size))
        rows = np.zeros((len(chunk), width), dtype=np.int64)
        outputs = np.zeros((len(chunk), width, self.outputs), dtype=self._real)
        gradients = np.zeros_like(outputs)
        library, clients = self._library, np.ascontiguousarray(chunk)
        with ExitStack() as stack:
            each = [stack.enter_context(self._work()).value for _ in chunk]
            works = np.array(each, dtype=np.uintp)
            common = pointer(works), ctypes.byref(call.task), pointer(clients)
            count = ctypes.c_int64(len(chunk))
            library.outer_begin(*common, count)
            for number in range(int(steps.max(initial=0))):
                place = count, ctypes.c_int64(number), ctypes.c_int64(width), pointer(rows)
                library.outer_forward(*common, *place, pointer(outputs))
                busy = np.where(number < steps, lengths, 0)
                index = arrays.get("index")
                where = rows if index is None else index[rows]
                values = outer.gradients(outputs, where, busy, gradients)
                arrays["losses"][chunk[busy > 0], number] = values[busy > 0]
                library.outer_backward(*common, *place, pointer(gradients))
            library.outer_end(*common, count)

    def _known(self, index: NDArray[np.int64] | None, samples: int) -> NDArray[np.int64] | None:
        """Return an index that was looked at: once, since it may have ten million entries."""
        if index is None or self._index == (id(index), samples):
            return index
        array = as_array("index", index, np.int64)
        if len(array) and not 0 <= array.min() <= array.max() < samples:
            raise InputError("index", array, f"must be numbers of {samples} samples")
        self._index, self._kept_index = (id(index), samples), index
        return array

    def _check_drawn(self, batch: int) -> None:
        if batch > MOST_DRAWN:
            raise InputError("batch_size", batch, f"dropout is drawn for {MOST_DRAWN} at most")

    def gradient(
        self, model: Array, inputs: Inputs, targets: Array, seed: int = 0
    ) -> tuple[float, NDArray[Any]]:
        """The mean loss over all samples and its gradient, in the order of the parameters.

        seed  of dropout
        """
        if self.drops:
            self._check_drawn(len(inputs))
        vector = as_array("model", model, self._real, self.parameters)
        (x, table), samples = self._inputs(inputs), len(inputs)
        y = self._targets(targets, samples)
        out = np.empty(self.parameters, dtype=self._real)
        mean = ctypes.c_double()
        with self._work() as work:
            status = self._library.gradient(
                work,
                pointer(vector),
                pointer(x),
                pointer(table),
                pointer(y),
                ctypes.c_int64(samples),
                ctypes.c_uint32(seed & 0xFFFFFFFF),
                ctypes.byref(mean),
                pointer(out),
            )
        self._refuse(status)
        return mean.value, out

    def forward(self, model: Array, inputs: Inputs, threads: int = 1) -> NDArray[Any]:
        """The network's outputs, of shape (samples, outputs)."""
        return self._evaluate(model, inputs, None, threads)[1]

    def evaluate(
        self, model: Array, inputs: Inputs, targets: Array, threads: int = 1
    ) -> tuple[float, int]:
        """The mean loss, and how many samples have their largest output at the label (else 0)."""
        mean, outputs = self._evaluate(model, inputs, targets, threads)
        if not self.loss.has_labels:
            return mean, 0
        labels = targets.numpy() if isinstance(targets, torch.Tensor) else targets
        return mean, int((outputs.argmax(axis=1) == labels.reshape(-1)).sum())

    def _evaluate(
        self, model: Array, inputs: Inputs, targets: Array | None, threads: int
    ) -> tuple[float, NDArray[Any]]:
        vector = as_array("model", model, self._real, self.parameters)
        samples = len(inputs)
        x, table = self._inputs(inputs)
        y = None if targets is None else self._targets(targets, samples)
        blocks = -(-samples // self.block)
        losses = np.zeros(blocks)
        outputs = np.empty((samples, self.outputs), dtype=self._real)
        counter = np.zeros(1, dtype=np.int64)

        def task() -> None:
            with self._work() as work:
                status = self._library.evaluate(
                    work,
                    pointer(vector),
                    pointer(x),
                    pointer(table),
                    pointer(y),
                    ctypes.c_int64(samples),
                    pointer(counter),
                    pointer(losses),
                    pointer(outputs),
                )
            self._refuse(status)

        self._spread(min(threads, blocks), task)
        whole = samples if targets is None else self.loss.whole(torch.as_tensor(targets))
        return float(losses.sum() / max(whole, 1e-300)), outputs


def compile_model(
    module: nn.Module,
    loss: LossForm | object,
    sample_shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    optimise: str = "-O3",
    target: str = "native",
    batch_size: int | None = None,
    rule: Rule | None = None,
    tables: int = 0,
) -> CompiledModel:
    """Compile `module` for inputs of `sample_shape`, or say by `Unsupported` why it cannot be.

    Only the structure of the module counts: its weights come with every call, as the concatenation
    of `module.parameters()` flattened in order. It has the terms that `rule` has (plain SGD: none),
    whatever numbers stand in them. What comes back agrees with autograd on this machine, for
    batches of `batch_size` among others; once found out, that is known for good. With `tables`
    inputs are `Pixels`, with so many scales: one for all channels, or one for each.
    """
    if dtype not in _TYPES:
        raise Unsupported(f"{dtype}: only float32 and float64 are supported")
    shape, form = tuple(sample_shape), loss_form(loss)
    plan = make_plan(module, shape)
    form.check(plan.shapes[-1].elements)
    rule = rule or Rule()
    text = generate(
        plan, form, "float64" if dtype == torch.float64 else "float32", rule.terms, tables
    )
    toolchain = find_toolchain(optimise, target)
    key = toolchain.key(text)
    entry = cache.read(key)
    proof = Proof.from_notes(entry.notes) if entry else None
    if entry is None or proof is None:
        entry, proof = None, Proof.of(toolchain)
    library = entry.library if entry else compile_text(text, toolchain)
    if library is None:
        raise Unsupported(proof.refusal)
    model = CompiledModel(plan, form, dtype, shape, rule, tables, cache.load(library))
    extended = proof.extended(model, module, batch_size)
    if extended != proof:
        cache.keep(key, library if extended.agrees else None, extended.notes)
    if not extended.agrees:
        raise Unsupported(extended.refusal)
    model.proof, model.from_cache = extended.notes, entry is not None
    return model
