"""`sdfeel compare`: several schemes or settings, on the same data, over simulated time."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sdfeel.cli.output import (
    JsonFlag,
    SetOption,
    console,
    live_runs,
    print_json,
    print_written,
    say,
)
from sdfeel.cli.run import ConfigArgument, Stopped

__all__ = ["announcer", "compare"]

REPLAY = "replay.html"


def compare(
    config: ConfigArgument = "demo",
    settings: SetOption = None,
    schemes: Annotated[
        str,
        typer.Option(
            help="Names of schemes, separated by commas, in place of the variants of the file."
        ),
    ] = "",
    seeds: Annotated[int, typer.Option(help="Number of seeds for each; curves get a band.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and the page.")] = Path(
        "runs/compare"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Train several schemes or settings, then show a table, figures and a page.

    Runs that are done are not repeated, and a stopped run goes on. If you start the command twice,
    the two share the runs.
    """
    from sdfeel.errors import InputError
    from sdfeel.experiments.comparison import carry_out, from_config
    from sdfeel.experiments.config import experiment_of
    from sdfeel.experiments.jobs import Interrupted
    from sdfeel.reports.comparison import write_comparison
    from sdfeel.reports.rendering import rich_table

    if seeds < 1:
        raise InputError("--seeds", seeds, "at least 1")
    experiment = experiment_of(config, settings or [], schemes)
    title = str(experiment.base.get("title") or config)
    contenders = {label: from_config(variant) for label, variant in experiment.runs().items()}
    try:
        with live_runs() as show:
            comparison = carry_out(
                contenders,
                [None] if seeds == 1 else range(seeds),
                out,
                on_start=announcer(),
                on_progress=lambda progress: show(progress.job.name, progress.run),
            )
    except Interrupted as stopped:
        raise Stopped("the same command", stopped.folder, signal.SIGINT) from None
    links = {REPLAY: "Replay these runs: curves, network and timeline"} if _replay(out) else {}
    written = write_comparison(out, comparison.records, title=title, links=links)
    files = [str(path) for path in (written.page, written.png, written.svg, written.table)]
    files += [str(out / file) for file in links]
    if as_json:
        print_json({"title": title, "runs": written.rows, "written": files})
        return
    console.print(rich_table(written.rows, title))
    print_written(*files)
    console.print("go on with:", highlight=False)
    console.print(f"  sdfeel watch {shlex.quote(str(out))}", highlight=False, soft_wrap=True)


def _replay(out: Path) -> bool:
    """Save the live page of the runs beside their report; whether it is not too large for that."""
    from sdfeel.errors import InputError
    from sdfeel.page.runs import Runs
    from sdfeel.page.saved import save_page
    from sdfeel.page.views import Views

    try:
        save_page(Views(Runs([out])), out / REPLAY, report="index.html")
    except InputError as problem:
        say(str(problem))
        return False
    return True


def announcer() -> Callable[[str, str], None]:
    """Make a function that says which engine works, and why; of several runs once."""
    engines: set[str] = set()

    def announce(engine: str, reason: str) -> None:
        if engine not in engines:
            engines.add(engine)
            say(f"engine: {reason}")

    return announce
