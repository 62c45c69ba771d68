"""The loop of Algorithm 1. Every scheme runs through it and every engine carries it out."""

from __future__ import annotations

from collections.abc import Callable

from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.running import Keeper, NoKeeper, Outcome, Progress, Run

__all__ = ["Keeper", "NoKeeper", "Outcome", "Progress", "run_loop"]


def run_loop(
    run: Run,
    *,
    on_progress: Callable[[Progress], object] = lambda _: None,
    on_row: Callable[[list[Row]], object] = lambda _: None,
    on_round: Callable[[Progress], object] = lambda _: None,
    start: Checkpoint | None = None,
) -> Outcome:
    """Algorithm 1 for k = 1..steps, or until the simulated clock shows `until` seconds.

    on_progress is called now and then, on_row after an evaluation, on_round where an upload period
    has ended, or by turns some of them. One that answers True ends the run there, with a last
    evaluation.
    """
    run.begin(start)
    if not run.rows or (run.finished and not run.evaluated):
        run.evaluate()
        run.heard(on_row(run.rows))
    interrupted = False
    stop = run.next_stop()
    while not run.finished and not interrupted:
        if run.local_updates(stop):
            if run.aggregated:
                run.exchange()
                run.heard(on_round(run.progress()))
            if run.evaluates:
                run.evaluate()
                run.heard(on_row(run.rows))
        run.heard(on_progress(run.progress()))
        interrupted, due, stop = run.look_up()
        if run.stopped and not run.evaluated:
            run.evaluate()
            on_row(run.rows)
        if interrupted or due:
            run.save()
    if run.finished:
        run.save()
    return run.outcome(interrupted)
