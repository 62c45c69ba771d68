"""The runs of a plan, one after the other; what is done stays done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sdfeel.data.fetch import fetch
from sdfeel.experiments.compare import run_or_resume
from sdfeel.experiments.reproduce.plan import PlannedRun, Reproduction
from sdfeel.files import FileLock, check_writable
from sdfeel.simulation.loop import Progress

__all__ = ["RunnerProgress", "carry_out", "run_folder"]


@dataclass(frozen=True)
class RunnerProgress:
    """Where the experiment is: `number` of `runs`, and what is left in real seconds."""

    job: PlannedRun
    number: int
    runs: int
    fraction: float  # of the work of all runs
    left: float | None  # real seconds; None before anything was measured
    run: Progress


def run_folder(out: Path, folder: str) -> Path:
    return out / "runs" / folder


def carry_out(
    plan: Reproduction,
    out: Path,
    *,
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[RunnerProgress], None] = lambda _: None,
    on_seed: Callable[[int], None] = lambda _: None,
) -> None:
    """Do what is not done yet; `Interrupted` says that the user stopped it.

    on_seed  called with the number of seeds that are complete: after the first, and at the end
    Several of these may work in one folder at once and share the runs: a run belongs to whoever
    began it. The others go on with the next one, and wait for it once nothing else is left.
    """
    check_writable(out)
    fetch(plan.dataset)
    meter = _Meter(plan, on_progress)

    def finish(number: int, wait: bool) -> bool:
        """Whether the run is done: not if another process has it, and we do not wait."""
        job = plan.jobs[number - 1]
        folder = run_folder(out, job.folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / f".{folder.name}.lock")
        try:
            lock.acquire(wait=wait)
        except BlockingIOError:
            return False
        with lock:
            run_or_resume(
                job.config, folder, on_start=on_start, on_progress=meter.watch(number, job)
            )
        meter.done(job)
        return True

    left = set(range(1, len(plan.jobs) + 1))
    first = {number for number in left if plan.jobs[number - 1].seed == 0}
    while left:  # from the top each time: what others have done meanwhile is seen
        done = next((number for number in sorted(left) if finish(number, wait=False)), None)
        if done is None:
            done = min(left)
            finish(done, wait=True)
        left.remove(done)
        if left and done in first and not first & left:
            on_seed(1)
    on_seed(plan.seeds)


class _Meter:
    """Time left, from the client steps a second of the runs so far."""

    def __init__(self, plan: Reproduction, tell: Callable[[RunnerProgress], None]) -> None:
        self.total = sum(job.work for job in plan.jobs)
        self.runs = len(plan.jobs)
        self.tell = tell
        self.finished = 0.0
        self.measured = 0.0  # client steps done in this call, and the real time they took
        self.seconds = 0.0
        self.began = time.monotonic()
        self.last = 0.0

    def watch(self, number: int, job: PlannedRun) -> Callable[[Progress], None]:
        self.began, self.last = time.monotonic(), 0.0

        def show(progress: Progress) -> None:
            # A resumed run starts in the middle: only what was done here counts as speed.
            here = job.work * (progress.fraction - progress.resumed)
            spent = self.seconds + time.monotonic() - self.began
            done = self.finished + job.work * progress.fraction
            speed = (self.measured + here) / spent if spent > 0 else 0.0
            left = (self.total - done) / speed if speed > 0 else None
            self.tell(RunnerProgress(job, number, self.runs, done / self.total, left, progress))
            self.last = here

        return show

    def done(self, job: PlannedRun) -> None:
        self.finished += job.work
        if self.last > 0:
            self.measured += self.last
            self.seconds += time.monotonic() - self.began
