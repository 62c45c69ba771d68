"""`sdfeel plot`: figures of runs that lie on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sdfeel.cli.output import JsonFlag, console, print_json

__all__ = ["plot"]


def plot(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="The figure; PNG and SVG are written.")] = Path(
        "runs.png"
    ),
    over: Annotated[str, typer.Option(help="seconds (simulated) or iteration.")] = "seconds",
    as_json: JsonFlag = False,
) -> None:
    """Loss and accuracy of one or more runs in one figure; runs of one scheme give a band."""
    from sdfeel.errors import InputError
    from sdfeel.records.reading import read_run
    from sdfeel.reports.figures import Panel, figure_panels, save_figure
    from sdfeel.reports.settings import group_runs

    if over not in ("seconds", "iteration"):
        raise InputError("--over", over, "seconds or iteration")
    groups = group_runs([read_run(folder) for folder in folders])
    curves = {label: [run.metrics for run in runs] for label, runs in groups.items()}
    panels = [Panel(curves, over, column) for column in ("train_loss", "test_accuracy")]
    written = save_figure(figure_panels(panels), out)
    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        console.print("written:", *map(str, written), highlight=False, soft_wrap=True)
