"""`sdfeel reproduce`: the paper's figures, with a verdict on everything that it says of them."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from sdfeel.cli.compare import announcer
from sdfeel.cli.output import (
    JsonFlag,
    SetOption,
    console,
    errors,
    plain_table,
    print_json,
    print_written,
    say,
)
from sdfeel.cli.run import Stopped

if TYPE_CHECKING:
    from sdfeel.experiments.jobs import JobProgress
    from sdfeel.experiments.reproduce import Reproduction, Verdict

__all__ = ["reproduce"]

# Without a terminal, a line at most this often (seconds).
LINE_EVERY = 10.0
STYLES = {"confirmed": "green", "not confirmed": "red", "open": "yellow"}


def reproduce(
    figures: Annotated[
        list[str],
        typer.Argument(
            metavar="FIGURE...",
            help="fig3, fig4, fig4-tau2, fig5-topology, fig5-alpha, fig6, averagers, planner, "
            "methods, devices, attacks; or all.",
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Short runs: all figures in half an hour on two cores.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The length of the paper, 250 simulated minutes: days.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    dataset: Annotated[
        str, typer.Option(help="cifar10, mnist, fashion-mnist or mnist-5k.")
    ] = "cifar10",
    settings: SetOption = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and verdicts.")] = Path(
        "runs/reproduce"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Run the paper's experiments, draw its figures and judge its statements.

    Without --quick or --full it takes a few hours. Runs that are done already are not done again;
    stop it at any time, the same command goes on. Started twice, the two share the runs.
    """
    from sdfeel.errors import InputError
    from sdfeel.experiments.reproduce import TARGETS, reproduction_of
    from sdfeel.experiments.reproduce.choice import choose, kept
    from sdfeel.files import check_writable

    if quick and full:
        raise InputError("--full", True, "not together with --quick")
    check_writable(out)  # before the planner works for minutes
    ask = partial(choose, tell=lambda what: say(f"planner: {what}"), laboratories={})
    plan = reproduction_of(
        TARGETS if "all" in figures else figures,
        profile="quick" if quick else "full" if full else "default",
        dataset=dataset,
        seeds=seeds,
        settings=settings or [],
        ask=kept(out / "planner", ask),
    )
    verdicts = carried_out(plan, out)
    if as_json:
        print_json([verdict.as_dict() for verdict in verdicts])
        return
    console.print(_table(verdicts))
    print_written(out / "index.html")


def carried_out(plan: Reproduction, out: Path) -> list[Verdict]:
    """Do the runs of a plan with a bar, write what they show, and return the verdicts."""
    from sdfeel.experiments.jobs import Interrupted
    from sdfeel.experiments.reproduce import carry_out, write_reports
    from sdfeel.files import check_writable

    check_writable(out)
    verdicts: list[Verdict] = []
    try:
        with _live() as show:
            carry_out(
                plan,
                out,
                on_start=announcer(),
                on_progress=show,
                on_seed=lambda _: verdicts.__setitem__(slice(None), write_reports(plan, out)),
            )
    except Interrupted as stopped:
        raise Stopped("the same command", stopped.folder, signal.SIGINT) from None
    return verdicts


def _table(verdicts: list[Verdict]) -> Table:
    from sdfeel.experiments.reproduce.document import verdict_rows

    table = plain_table("figure", "claim", "verdict", "measured")
    for row in verdict_rows(verdicts):
        reading = f" [{row['reading']}]" if row["reading"] else ""
        verdict = str(row["verdict"])
        table.add_row(
            str(row["figure"]),
            Text(f"{row['claim']}{reading}"),
            Text(verdict, style=STYLES[verdict]),
            Text(f"{row['measured']}, asked {row['asked for']}"),
        )
    return table


@contextmanager
def _live() -> Iterator[Callable[[JobProgress], None]]:
    """One bar over all runs, or without a terminal a line now and then."""
    if not errors.is_terminal:
        yield _lines()
        return
    columns = (TextColumn("{task.fields[count]}"), BarColumn(24), TextColumn("{task.fields[left]}"))
    with Progress(*columns, TextColumn("{task.description}"), console=errors) as bar:
        task = bar.add_task("", total=1.0, count="", left="")

        def show(progress: JobProgress) -> None:
            count, left, about = _words(progress)
            bar.update(task, completed=progress.fraction, description=about, count=count, left=left)

        yield show


def _lines() -> Callable[[JobProgress], None]:
    last = -math.inf

    def show(progress: JobProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY:
            last = time.monotonic()
            say("  ".join(_words(progress)))

    return show


def _words(progress: JobProgress) -> tuple[str, str, str]:
    left = "time left unknown" if progress.left is None else f"{_clock(progress.left)} left"
    run = progress.run
    speed = f"{run.client_steps_per_second:,.0f} client steps/s"
    return (
        f"run {progress.number} of {progress.runs}",
        f"{100 * progress.fraction:.0f} %, {left}",
        f"{progress.job.name}, iteration {run.iteration:,} of {run.iterations:,}, {speed}",
    )


def _clock(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
