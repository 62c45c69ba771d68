"""Measures the fast engine's kernels against a plain PyTorch loop.

Interleaved repetitions, medians and the spread between the quartiles. The loop and the first column
are one thread and processor time, which a busy machine disturbs little; the next are all cores by
the clock on the wall, against the loop by that clock: upload periods from the servers' models to
sums, and from a row of each client's own. Then what rules cost beside plain SGD, and what the first
and the second start cost with each compiler at hand. `--numba` adds the second convolution as loops
for numba.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from sdfeel.engines.fast import AffineRule, CompiledModel, compile_model

CLIENTS, SERVERS, SAMPLES, BATCH, STEPS, LOOP_STEPS = 50, 10, 100, 10, 5, 40
Floats = NDArray[np.float64]


def cnn(channels: int, a: int, b: int, flat: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, a, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(a, b, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, 10),
    )  # fmt: skip


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "cnn 1x28x28": (cnn(1, 10, 20, 320, 50), (1, 28, 28)),
    "cnn 3x32x32": (cnn(3, 9, 15, 375, 46), (3, 32, 32)),
    "mlp 784-200-10": (
        nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)),
        (784,),
    ),
}


def loop_steps(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """As good as a competent person writes it: tensors resident, no optimiser object."""
    weights = list(module.parameters())

    def steps() -> None:
        for _ in range(LOOP_STEPS):
            chosen = torch.randint(0, SAMPLES, (BATCH,))
            loss = functional.cross_entropy(module(x[chosen]), y[chosen])
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                torch._foreach_add_(weights, gradients, alpha=-0.01)

    return steps


class Period:
    """An upload period of all clients: from rows of their own, or from their servers' to sums."""

    def __init__(
        self, compiled: CompiledModel, module: nn.Module, x: torch.Tensor, y: torch.Tensor
    ):
        vector = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        self.compiled, self.x, self.y = compiled, x, y
        self.clients = vector.repeat(CLIENTS, 1).contiguous()
        self.servers = vector.repeat(SERVERS, 1).contiguous()
        self.sums = torch.zeros_like(self.servers)
        self.every, self.offsets = np.arange(CLIENTS), np.arange(CLIENTS + 1) * SAMPLES
        self.server = self.every * SERVERS // CLIENTS
        self.shares = np.full(CLIENTS, SERVERS / CLIENTS)

    def run(self, threads: int, by_servers: bool, **more: Any) -> None:
        if by_servers:
            self.sums.zero_()
            more |= {
                "start": (self.servers, self.server),
                "sums": (self.sums, self.server, self.shares),
            }
        else:
            more |= {"start": (self.clients, self.every), "out": (self.clients, self.every)}
        self.compiled.local_updates(
            self.every, self.every, self.x, self.y, self.offsets,
            seed=1, batch_size=BATCH, first=np.ones(CLIENTS, np.int64),
            last=np.full(CLIENTS, STEPS), rates=np.full(STEPS, 0.01), first_rate=1,
            threads=threads, **more,
        )  # fmt: skip


def timed(
    call: Callable[[], None], steps: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    start = clock()
    call()
    return (clock() - start) / steps * 1e6


def interleaved(
    calls: dict[str, tuple[Callable[[], None], int, Callable[[], float]]], repetitions: int
) -> dict[str, Floats]:
    """Microseconds a step of each, in turn, after a warm-up."""
    for call, _, _ in calls.values():
        call()
    rows = [[timed(*call) for call in calls.values()] for _ in range(repetitions)]
    return dict(zip(calls, np.array(rows).T, strict=True))


def shown(times: Floats) -> str:
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    return f"{middle:.0f} [{low:.0f}, {high:.0f}]"


def problem(name: str) -> tuple[nn.Module, tuple[int, ...], torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module, shape = NETWORKS[name]
    x = torch.randn(CLIENTS * SAMPLES, *shape)
    return module, shape, x, torch.randint(0, 10, (len(x),))


def compare(repetitions: int, cores: int, target: str) -> None:
    print(f"microseconds a step, {CLIENTS} clients, batch {BATCH}, {STEPS} steps a call, {target}")
    for name in NETWORKS:
        module, shape, x, y = problem(name)
        period = Period(compile_model(module, "cross-entropy", shape, target=target), module, x, y)
        loop, steps = loop_steps(module, x, y), CLIENTS * STEPS
        times = interleaved(
            {
                "loop": (loop, LOOP_STEPS, time.thread_time),
                "one": (lambda: period.run(1, True), steps, time.thread_time),  # noqa: B023
                "loop, wall": (loop, LOOP_STEPS, time.perf_counter),
                "all": (lambda: period.run(cores, True), steps, time.perf_counter),  # noqa: B023
                "rows": (lambda: period.run(cores, False), steps, time.perf_counter),  # noqa: B023
            },
            repetitions,
        )
        one = np.median(times["loop"] / times["one"])
        all_, rows = (np.median(times["loop, wall"] / times[key]) for key in ("all", "rows"))
        print(
            f"{name:>15}: loop {shown(times['loop'])}   1 thread {shown(times['one'])} = {one:.1f}x"
            f"   {cores} threads {shown(times['all'])} = {all_:.1f}x"
            f"   from rows of their own {shown(times['rows'])} = {rows:.1f}x"
        )


RULES = {
    "decay": AffineRule(weight_decay=1e-4),
    "prox": AffineRule(prox=0.1),
    "shift": AffineRule(shifted=True),
    "momentum": AffineRule(momentum=0.9),
    "nesterov + decay": AffineRule(momentum=0.9, nesterov=True, weight_decay=1e-4),
    "all": AffineRule(1e-4, 0.1, 0.9, nesterov=True, shifted=True),
}


def rules(repetitions: int, target: str) -> None:
    print("speed of rules beside plain SGD, one thread, median of interleaved ratios")
    for name in NETWORKS:
        module, shape, x, y = problem(name)
        calls = {}
        for rule_name, rule in {"sgd": AffineRule(), **RULES}.items():
            compiled = compile_model(module, "cross-entropy", shape, target=target, rule=rule)
            period = Period(compiled, module, x, y)
            shift = torch.zeros_like(period.clients)
            more = {"shift": (shift, period.every)} if rule.shifted else {}
            run = functools.partial(period.run, 1, True, **more)
            calls[rule_name] = (run, CLIENTS * STEPS, time.thread_time)
        times = interleaved(calls, repetitions)
        ratios = (f"{key} {np.median(times['sgd'] / times[key]):.3f}" for key in RULES)
        print(f"{name:>15}: {'   '.join(ratios)}")


def starts() -> None:
    module, shape = NETWORKS["cnn 1x28x28"]
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    for name, command in (("cc", found), ("ziglang", f"{sys.executable} -m ziglang cc")):
        if command is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {"SDFEEL_CACHE": folder, "SDFEEL_CC": command}
            try:
                times = [
                    timed(lambda: compile_model(module, "cross-entropy", shape) and None, 1) / 1e6
                    for _ in range(2)
                ]
            finally:
                del os.environ["SDFEEL_CACHE"], os.environ["SDFEEL_CC"]
        print(f"{name:>15}: first start {times[0]:.2f} s, second {times[1]:.3f} s")


def numba_convolution() -> None:
    import numba  # type: ignore[import-not-found]

    @numba.njit(fastmath=True)  # type: ignore[untyped-decorator]
    def forward(x, w, y):  # type: ignore[no-untyped-def]
        for b in range(10):
            for i in range(8):
                for j in range(8):
                    line = y[b, i, j]
                    line[:] = 0
                    for r in range(5):
                        for c in range(5):
                            for k in range(10):
                                value = x[b, i + r, j + c, k]
                                for o in range(24):
                                    line[o] += value * w[r, c, k, o]

    x, w = np.ones((10, 12, 12, 10), np.float32), np.ones((5, 5, 10, 24), np.float32)
    y = np.empty((10, 8, 8, 24), np.float32)
    first = timed(lambda: forward(x, w, y), 1) / 1e6
    best = min(timed(lambda: forward(x, w, y), 1) for _ in range(200))
    print(f"          numba: second convolution forward {best:.0f} us (first call {first:.1f} s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", default="native", help="what -march says, as x86-64-v3")
    parser.add_argument("--numba", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    compare(chosen.repetitions, chosen.cores, chosen.target)
    rules(chosen.repetitions, chosen.target)
    starts()
    if chosen.numba:
        numba_convolution()
