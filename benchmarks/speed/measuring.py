"""Contenders side by side: a process each, asked in turn, so that all see the same machine."""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from sdfeel.errors import RunError

__all__ = ["Measured", "Spread", "cores", "measure", "ratio", "spread", "worker_environment"]

PATIENCE = 60.0  # seconds that a process has to end once it was told to
SLOW = 3.0  # a first segment this many times longer than a measurement is asked to be is all of it


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Spread:
    """A number that was measured several times."""

    median: float
    low: float
    high: float
    repetitions: int

    def as_dict(self) -> dict[str, float]:
        return dict(vars(self))


def spread(values: Sequence[float]) -> Spread:
    """Median, least and largest."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


@dataclass
class Measured:
    """What one contender did in every repetition, in their order."""

    units: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of the work itself
    parts: list[dict[str, float]] = field(default_factory=list)  # seconds by what they went into
    cpu_seconds: list[float] = field(default_factory=list)  # of all its threads and processes
    peak_gb: float = math.nan  # of all its processes together
    first_start: float = math.nan  # seconds to get ready and for the first segment, imports apart
    engine: str = ""  # that it took
    unsupported: str | None = None

    @property
    def rates(self) -> list[float]:
        """Units a second in every repetition."""
        return [n / s for n, s in zip(self.units, self.seconds, strict=True)]


def ratio(one: Measured, other: Measured, factor: float = 1.0) -> Spread | None:
    """How many times as fast the one is, by pairs of neighbouring measurements of one run."""
    if one.unsupported or other.unsupported:
        return None
    pairs = zip(one.rates, other.rates, strict=True)
    return spread([factor * mine / theirs for mine, theirs in pairs])


def worker_environment(threads: int) -> dict[str, str]:
    """The environment of a process with so many threads.

    Threads that wait do so asleep: spinning ones would take the core of whoever is measured. And
    it finds this package, wherever it runs.
    """
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    return {
        **{key: value for key, value in os.environ.items() if key != "MKL_NUM_THREADS"},
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


class _Worker:
    """The process of a job, seen from outside."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "speed.worker", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=worker_environment(int(job["threads"])),
        )

    def ask(self, segments: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{segments}\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            raise RunError(f"a process of the benchmark ended early: {last}")
        content: dict[str, Any] = json.loads(line)
        return content

    def end(self) -> None:
        """Tell it to, without waiting for it: that takes as long as many measurements do."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        self.end()
        if self._process.stdout is not None:
            self._process.stdout.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class _Team:
    """The processes that make up one contender, and what they did."""

    def __init__(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        self.measured = Measured()
        self._workers = [_Worker(job) for job in jobs]
        self._segments, self._first_segment = 1, 0.0

    def get_ready(self) -> None:
        """Alone: who chooses by measuring must not be disturbed by others that get ready."""
        for worker in self._workers:
            worker.ask(0)
        answers = [worker.answer() for worker in self._workers]
        reasons = [answer["unsupported"] for answer in answers if "unsupported" in answer]
        if reasons:
            self.measured.unsupported = reasons[0]
            return
        self.measured.engine = answers[0]["engine"]
        self.measured.first_start = max(a["build_seconds"] + a["first_seconds"] for a in answers)
        self._first_segment = max(a["first_seconds"] for a in answers)

    def settle(self, seconds: float, segments: int | None) -> None:
        """Find out how many segments take so long; this first measurement does not count.

        Whose very first segment took several times as long needs no second trial: one it is.
        """
        if segments is not None:
            self._segments = segments
        elif self._first_segment > SLOW * seconds:
            self._segments = 1
        elif self.measured.unsupported is None:
            took = sum(_slowest(self._run()).values())
            self._segments = max(1, round(seconds / took))

    def repeat(self) -> None:
        if self.measured.unsupported is None:
            answers = self._run()
            parts = _slowest(answers)
            self.measured.units.append(sum(a["units"] for a in answers))
            self.measured.seconds.append(parts["work"])
            self.measured.parts.append(parts)
            self.measured.cpu_seconds.append(sum(a["cpu_seconds"] for a in answers))
            self.measured.peak_gb = sum(a["peak_gb"] for a in answers)

    def _run(self) -> list[dict[str, Any]]:
        """All processes at once."""
        for worker in self._workers:
            worker.ask(self._segments)
        return [worker.answer() for worker in self._workers]

    def end(self) -> None:
        for worker in self._workers:
            worker.end()

    def close(self) -> None:
        self.end()
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> _Team:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _slowest(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Processes that work together take as long as the slowest of them."""
    parts: dict[str, float] = max((a["parts"] for a in answers), key=lambda parts: parts["work"])
    return parts


def measure(
    teams: Mapping[str, Sequence[Mapping[str, Any]]],
    repetitions: int,
    seconds: float,
    segments: int | None = None,
) -> dict[str, Measured]:
    """Measure contenders, each a list of jobs that run at the same time, in turn.

    repetitions  how often each is measured; every second time in the opposite order
    seconds      about how long a measurement of one contender takes
    segments     so many in a measurement, in place of `seconds` and the trial that it takes
    """
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(_Team(jobs)) for name, jobs in teams.items()}
        for team in found.values():
            team.get_ready()
        for team in found.values():
            team.settle(seconds, segments)
        order = list(found.values())
        for _ in range(repetitions):
            for team in order:
                team.repeat()
            order.reverse()
        for team in order:
            team.end()
        return {name: team.measured for name, team in found.items()}
