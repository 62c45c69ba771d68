"""`sdfeel compare`: several schemes or settings, on the same data, over simulated time."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdfeel.cli.output import JsonFlag, SetOption, console, live_runs, print_json, say
from sdfeel.cli.run import ConfigArgument, Stopped

if TYPE_CHECKING:
    from sdfeel.experiments.config import RunConfig
    from sdfeel.records.reading import RunRecord

__all__ = ["compare"]


def compare(
    config: ConfigArgument = "demo",
    settings: SetOption = None,
    schemes: Annotated[
        str, typer.Option(help="Schemes with commas between, in place of the file's variants.")
    ] = "",
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N-1 for each; curves get a band.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and the page.")] = Path(
        "runs/compare"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Train by several schemes, then show a table, figures and a page.

    Runs that are done already are not done again; one that was stopped goes on.
    """
    from sdfeel.errors import InputError
    from sdfeel.experiments.compare import Interrupted
    from sdfeel.experiments.config import experiment_of
    from sdfeel.reports.comparison import write_comparison
    from sdfeel.reports.rendering import rich_table

    if seeds < 1:
        raise InputError("--seeds", seeds, "at least 1")
    experiment = experiment_of(config, settings or [], schemes)
    configs = experiment.runs()
    title = str(experiment.base.get("title") or config)
    try:
        records = _run_all(configs, seeds, out)
    except Interrupted as stopped:
        raise Stopped("the same command", stopped.folder, signal.SIGINT) from None
    written = write_comparison(out, records, title=title)
    files = [str(path) for path in (written.page, written.png, written.svg, written.table)]
    if as_json:
        print_json({"title": title, "runs": written.rows, "written": files})
        return
    console.print(rich_table(written.rows, title))
    console.print("written:", *files, highlight=False, soft_wrap=True)


def _run_all(configs: dict[str, RunConfig], seeds: int, out: Path) -> dict[str, list[RunRecord]]:
    from sdfeel.experiments.compare import FromConfig, run_all
    from sdfeel.records.reading import read_run

    said: set[str] = set()

    def announce(engine: str, reason: str) -> None:
        if engine not in said:
            said.add(engine)
            say(f"engine: {reason}")

    contenders = {label: FromConfig(config) for label, config in configs.items()}
    numbers = [None] if seeds == 1 else list(range(seeds))
    with live_runs() as show:
        found = run_all(contenders, numbers, out, on_start=announce, on_progress=show)
    return {
        label: [read_run(one.folder) for one in of if one.folder is not None]
        for label, of in found.items()
    }
