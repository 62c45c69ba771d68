"""Several runs, one after the other, each in its folder: a comparison, and a reproduction too.

A run that is done is not done again, and one that was stopped goes on. Processes that are started
with one folder share its runs: a run belongs to the process that began it. The others go on with
the next one, and wait for it once nothing else is left.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sdfeel.api import Result
from sdfeel.experiments.config import RunConfig
from sdfeel.experiments.run import run
from sdfeel.files import FileLock, check_writable
from sdfeel.records.reading import FollowedRun
from sdfeel.simulation.listening import Progress

Started = Callable[[str, str], None]
# Carries out a run in a folder, or in none; gives None if the folder holds the result already.
Run = Callable[[Path | None, Started, Callable[[Progress], None]], Result | None]


class Interrupted(Exception):  # noqa: N818 - the user's wish, not an error
    """The user stopped a run; its checkpoint is in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped: its checkpoint is in {folder}; the same call goes on")
        self.folder = folder


@dataclass(frozen=True)
class Job:
    """A run of several.

    name    what people read while it goes on
    folder  where it is kept, in the folder of all runs
    work    how long it takes beside the others; client steps, for instance
    """

    name: str
    folder: str
    run: Run
    work: float = 1.0


@dataclass(frozen=True)
class JobProgress:
    """Where the runs are: this is `number` of `runs`; `left` is in real seconds.

    fraction  of the work of all runs
    left      None before anything was measured
    run       the progress of this run
    """

    job: Job
    number: int
    runs: int
    fraction: float
    left: float | None
    run: Progress


def run_all(
    jobs: Sequence[Job],
    out: Path | None,
    *,
    on_start: Started = lambda *_: None,
    on_progress: Callable[[JobProgress], None] = lambda _: None,
    on_done: Callable[[set[int]], None] = lambda _: None,
) -> list[Result | None]:
    """Carry out what is not done yet.

    Args:
        jobs: the runs.
        out: the folder of all; None keeps nothing.
        on_start: called with an engine's name and why it is this one.
        on_progress: called after every upload period of a run.
        on_done: called after every run, with the numbers of the jobs that are left.

    Returns:
        The result of each; None of a run that was done before.

    Raises:
        Interrupted: the user stopped a run; what was done of it is kept.
    """
    if out is not None:
        check_writable(out)
    meter = _Meter(jobs, on_progress)
    results: dict[int, Result | None] = {}
    # Ranks carry out one run together: they must all take the runs in the same order.
    is_shared = out is not None and int(os.environ.get("WORLD_SIZE", "1")) == 1

    def finish(number: int, wait: bool) -> bool:
        """Carry out a run, unless another process has it and `wait` is False."""
        job = jobs[number]
        folder = None if out is None else out / job.folder
        with ExitStack() as stack:
            if folder is not None and is_shared:
                lock = FileLock(folder.with_name(f".{folder.name}.lock"))
                try:
                    lock.acquire(wait=wait)
                except BlockingIOError:
                    return False
                stack.enter_context(lock)
            result = job.run(folder, on_start, meter.watch(number))
        if result is not None and result.interrupted and folder is not None:
            raise Interrupted(folder)
        meter.note_end(job)
        results[number] = result
        return True

    left = set(range(len(jobs)))
    while left:  # from the top each time: what others have done meanwhile is seen
        done = next((number for number in sorted(left) if finish(number, wait=False)), None)
        if done is None:
            done = min(left)
            finish(done, wait=True)
        left.remove(done)
        on_done(left)
    return [results[number] for number in range(len(jobs))]


class _Meter:
    """Time left, from the work a second of the runs so far."""

    def __init__(self, jobs: Sequence[Job], on_progress: Callable[[JobProgress], None]) -> None:
        self.jobs = jobs
        self.total = sum(job.work for job in jobs)
        self.on_progress = on_progress
        self.finished = 0.0
        self.measured = self.current = 0.0  # work of this call: earlier runs, and this one
        self.began = time.monotonic()

    def watch(self, number: int) -> Callable[[Progress], None]:
        job = self.jobs[number]

        def show(progress: Progress) -> None:
            # A resumed run starts in the middle: only what was done here counts as speed.
            self.current = job.work * (progress.fraction - progress.resumed)
            measured, done = (
                self.measured + self.current,
                self.finished + job.work * progress.fraction,
            )
            spent = time.monotonic() - self.began
            left = (self.total - done) * spent / measured if measured > 0 else None
            fraction = done / self.total
            self.on_progress(JobProgress(job, number + 1, len(self.jobs), fraction, left, progress))

        return show

    def note_end(self, job: Job) -> None:
        self.finished += job.work
        self.measured, self.current = self.measured + self.current, 0.0


def run_from(
    config: RunConfig, out: Path | None, on_start: Started, on_progress: Callable[[Progress], None]
) -> Result | None:
    """Carry out a run that a TOML table describes, or go on with it; None if it is done."""
    if out is not None and _is_finished(out, config):
        return None
    resume = out is not None
    return run(config, out=out, resume=resume, on_start=on_start, on_progress=on_progress)


def slug(label: str) -> str:
    """Make a label the name of a folder.

    >>> slug("fedavg (shared backhaul)")
    'fedavg-shared-backhaul'
    """
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "run"


def _is_finished(folder: Path, config: RunConfig) -> bool:
    run = FollowedRun(folder)
    run.look()
    wanted = json.loads(json.dumps(config.table(), default=str))
    is_same = {key: run.config.get(key) for key in wanted} == wanted
    return is_same and (run.summary or {}).get("interrupted") is False
