"""`sdfeel plot`: figures of runs that lie on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sdfeel.cli.output import JsonFlag, print_json, print_written

__all__ = ["plot"]


def plot(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or of comparisons.")],
    out: Annotated[Path, typer.Option(help="The figure; PNG and SVG are written.")] = Path(
        "runs.png"
    ),
    over: Annotated[str, typer.Option(help="seconds (simulated) or iteration.")] = "seconds",
    as_json: JsonFlag = False,
) -> None:
    """Draw loss and metrics of runs in one figure; runs that differ in their seed are a band."""
    from sdfeel.errors import InputError
    from sdfeel.records.comparison import COMPARISON, read_runs
    from sdfeel.records.reading import read_run
    from sdfeel.reports.figures import figure_of_metrics, save_figure
    from sdfeel.reports.settings import group_runs

    if over not in ("seconds", "iteration"):
        raise InputError("--over", over, "seconds or iteration")
    compared = [folder for folder in folders if (folder / COMPARISON).is_file()]
    groups = group_runs([read_run(folder) for folder in folders if folder not in compared])
    for folder in compared:  # they have labels of their own
        for label, runs in read_runs(folder)[1].items():
            groups[label if label not in groups else f"{label} ({folder.name})"] = runs
    curves = {label: [run.metrics for run in runs] for label, runs in groups.items()}
    written = save_figure(figure_of_metrics(curves, x=over), out)
    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        print_written(*written)
