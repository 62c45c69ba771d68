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
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.engines.fast import CompiledModel, Rule, compile_model
from sdfeel.engines.problem import Problem
from speed.jobs import Job, simulation_of
from speed.plain_loop import PlainLoop

NETWORKS = ("mnist-cnn", "cifar-cnn", "mlp")  # of the job, which says all else
JOB = Job("fast", clients=50, servers=10, samples=100, batch_size=10, tau1=5)
STEPS = JOB.clients * JOB.tau1  # of one call
Floats = NDArray[np.float64]


class Period:
    """An upload period of all clients: from rows of their own, or from their servers' to sums."""

    def __init__(self, problem: Problem, target: str, rule: Rule | None = None) -> None:
        shape = tuple(problem.data.inputs.shape[1:])
        self.compiled: CompiledModel = compile_model(
            problem.model, "cross-entropy", shape, target=target, rule=rule or Rule()
        )
        self.data = problem.data
        vector = problem.layout.vector(problem.model)
        self.clients = vector.repeat(JOB.clients, 1).contiguous()
        self.servers = vector.repeat(JOB.servers, 1).contiguous()
        self.sums = torch.zeros_like(self.servers)
        self.every = np.arange(JOB.clients)
        self.server = self.every * JOB.servers // JOB.clients
        self.shares = np.full(JOB.clients, JOB.servers / JOB.clients)

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
            self.every, self.every, self.data.inputs, self.data.targets, self.data.offsets,
            seed=1, batch_size=JOB.batch_size, first=np.ones(JOB.clients, np.int64),
            last=np.full(JOB.clients, JOB.tau1), rates=np.full(JOB.tau1, 0.01), first_rate=1,
            threads=threads, **more,
        )  # fmt: skip


def timed(
    call: Callable[[], object], steps: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    start = clock()
    call()
    return (clock() - start) / steps * 1e6


def interleaved(
    calls: Mapping[str, tuple[Callable[[], object], Callable[[], float]]], repetitions: int
) -> dict[str, Floats]:
    """Microseconds a step of each, in turn, after a warm-up."""
    for call, _ in calls.values():
        call()
    rows = [
        [timed(call, STEPS, clock) for call, clock in calls.values()] for _ in range(repetitions)
    ]
    return dict(zip(calls, np.array(rows).T, strict=True))


def shown(times: Floats) -> str:
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    return f"{middle:.0f} [{low:.0f}, {high:.0f}]"


def problem_of(network: str) -> Problem:
    return simulation_of(replace(JOB, model=network)).problem


def compare(repetitions: int, cores: int, target: str) -> None:
    print(
        f"microseconds a step, {JOB.clients} clients, batch {JOB.batch_size}, "
        f"{JOB.tau1} steps a call, {target}"
    )
    for name in NETWORKS:
        problem = problem_of(name)
        period = Period(problem, target)
        loop = functools.partial(PlainLoop(problem).local_updates, 1, JOB.tau1)
        times = interleaved(
            {
                "loop": (loop, time.thread_time),
                "one": (functools.partial(period.run, 1, True), time.thread_time),
                "loop, wall": (loop, time.perf_counter),
                "all": (functools.partial(period.run, cores, True), time.perf_counter),
                "rows": (functools.partial(period.run, cores, False), time.perf_counter),
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
    "decay": Rule(weight_decay=1e-4),
    "prox": Rule(prox=0.1),
    "shift": Rule(shifted=True),
    "momentum": Rule(momentum=0.9),
    "nesterov + decay": Rule(momentum=0.9, nesterov=True, weight_decay=1e-4),
    "all": Rule(1e-4, 0.1, 0.9, nesterov=True, shifted=True),
}


def rules(repetitions: int, target: str) -> None:
    print("speed of rules beside plain SGD, one thread, median of interleaved ratios")
    for name in NETWORKS:
        problem = problem_of(name)
        calls = {}
        for rule_name, rule in {"sgd": Rule(), **RULES}.items():
            period = Period(problem, target, rule)
            shift = torch.zeros_like(period.clients)
            more = {"shift": (shift, period.every)} if rule.shifted else {}
            run = functools.partial(period.run, 1, True, **more)
            calls[rule_name] = (run, time.thread_time)
        times = interleaved(calls, repetitions)
        ratios = (f"{key} {np.median(times['sgd'] / times[key]):.3f}" for key in RULES)
        print(f"{name:>15}: {'   '.join(ratios)}")


def starts() -> None:
    problem = problem_of(NETWORKS[0])
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    for name, command in (("cc", found), ("ziglang", f"{sys.executable} -m ziglang cc")):
        if command is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {"SDFEEL_CACHE": folder, "SDFEEL_CC": command}
            try:
                times = [timed(lambda: Period(problem, "native"), 1) / 1e6 for _ in "12"]
            finally:
                del os.environ["SDFEEL_CACHE"], os.environ["SDFEEL_CC"]
        print(f"{name:>15}: first start {times[0]:.2f} s, second {times[1]:.3f} s")


def numba_convolution() -> None:
    import numba  # type: ignore[import-not-found]

    @numba.njit(fastmath=True)
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
