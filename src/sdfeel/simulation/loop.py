"""The loop of Algorithm 1. Every scheme runs through it and every engine carries it out."""

from __future__ import annotations

from collections.abc import Callable

from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.running import Keeper, NoKeeper, Outcome, Progress, Run

__all__ = ["Keeper", "NoKeeper", "Outcome", "Progress", "run_loop"]


def run_loop(
    run: Run,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_row: Callable[[list[Row]], None] = lambda _: None,
    start: Checkpoint | None = None,
) -> Outcome:
    """Algorithm 1 for k = 1..steps, or until the simulated clock shows `until` seconds."""
    run.begin(start)
    if not run.rows:
        run.evaluate()
        on_row(run.rows)
    interrupted = False
    stop = run.next_stop()
    while not run.finished and not interrupted:
        if run.local_updates(stop):
            run.exchange()
            if run.evaluates:
                run.evaluate()
                on_row(run.rows)
        on_progress(run.progress())
        interrupted, due, stop = run.look_up()
        if interrupted or due:
            run.save()
    if run.finished:
        run.save()
    return run.outcome(interrupted)
