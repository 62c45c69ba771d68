"""Measures the fast engine's kernels against a plain PyTorch loop.

Interleaved repetitions, medians and the spread between the quartiles. The loop and the first column
are one thread and processor time, which a busy machine disturbs little; the second column is all
cores by the clock on the wall, against the loop by that clock. Then what the first and the second
start cost with each compiler at hand. `--numba` adds the second convolution as loops for numba.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sdfeel.simulation.engines.fast import CompiledModel, compile_model

CLIENTS, SAMPLES, BATCH, STEPS, LOOP_STEPS = 50, 100, 10, 5, 40


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


def updates(compiled: CompiledModel, module: nn.Module, x: torch.Tensor, y: torch.Tensor,
            threads: int) -> Callable[[], None]:  # fmt: skip
    vector = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    models = vector.repeat(CLIENTS, 1).contiguous()
    every, offsets = np.arange(CLIENTS), np.arange(CLIENTS + 1) * SAMPLES

    def run() -> None:
        compiled.local_updates(
            models, every, every, x, y, offsets,
            seed=1, first=1, last=STEPS, batch_size=BATCH, lr=0.01, threads=threads,
        )  # fmt: skip

    return run


def timed(
    call: Callable[[], None], steps: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    start = clock()
    call()
    return (clock() - start) / steps * 1e6


def compare(repetitions: int, cores: int) -> None:
    torch.set_num_threads(1)
    print(f"microseconds a step, {CLIENTS} clients, batch {BATCH}, {STEPS} steps a call")
    for name, (module, shape) in NETWORKS.items():
        torch.manual_seed(0)
        x = torch.randn(CLIENTS * SAMPLES, *shape)
        y = torch.randint(0, 10, (len(x),))
        compiled = compile_model(module, "cross-entropy", shape)
        loop = loop_steps(module, x, y)
        one, all_ = (updates(compiled, module, x, y, threads) for threads in (1, cores))
        for warm in (loop, one, all_):
            warm()
        rows = []
        for _ in range(repetitions):
            rows.append(
                (
                    timed(loop, LOOP_STEPS, time.thread_time),
                    timed(one, CLIENTS * STEPS, time.thread_time),
                    timed(loop, LOOP_STEPS),
                    timed(all_, CLIENTS * STEPS),
                )
            )
        table = np.array(rows)
        low, middle, high = np.quantile(table, [0.25, 0.5, 0.75], axis=0)
        ratios = np.median(table[:, ::2] / table[:, 1::2], axis=0)
        print(
            f"{name:>15}: loop {middle[0]:.0f} [{low[0]:.0f}, {high[0]:.0f}]"
            f"   fast, 1 thread {middle[1]:.0f} [{low[1]:.0f}, {high[1]:.0f}] = {ratios[0]:.1f}x"
            f"   {cores} threads {middle[3]:.0f} [{low[3]:.0f}, {high[3]:.0f}] = {ratios[1]:.1f}x"
        )


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
    parser.add_argument("--numba", action="store_true")
    chosen = parser.parse_args()
    compare(chosen.repetitions, chosen.cores)
    starts()
    if chosen.numba:
        numba_convolution()
