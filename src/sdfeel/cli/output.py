"""What the commands share: where they print, and the live display of a run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from sdfeel.simulation.listening import Progress

__all__ = [
    "JsonFlag", "SetOption", "clock_time", "console", "errors", "live_runs", "plain_table",
    "print_json", "print_written", "say", "simulated",
]  # fmt: skip

console = Console()
errors = Console(stderr=True)


def say(text: str, style: str = "") -> None:
    """Print lines for people on standard error.

    A terminal breaks them between words; a file gets them whole, so that `grep` finds them. An
    indented line is a command: it stays in one piece to be copied.
    """
    for line in text.splitlines() or [""]:
        is_whole = line.startswith(" ") or not errors.is_terminal
        errors.print(line, style=style, highlight=False, markup=False, soft_wrap=is_whole)


def plain_table(*columns: str, title: str | None = None) -> Table:
    """Make a table without frames for 80 columns; a heading that begins with > is of numbers."""
    table = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 2, 0, 0),
    )
    for column in columns:
        name = column.removeprefix(">")
        is_number = name != column
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number)
    return table


def print_written(*paths: object) -> None:
    """Name the files that were written, one a line."""
    for path in paths:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: schedule.tau1=3."),
]

# Without a terminal, a line at most this often (seconds).
LINE_EVERY = 10.0
BAR = 14  # characters


def print_json(content: Any) -> None:
    """One JSON object on standard output; numbers that are not finite become null."""
    print(json.dumps(_finite(content), indent=2, allow_nan=False))


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if hasattr(content, "item"):
        content = content.item()
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


Show = Callable[[str, "Progress"], None]


@contextmanager
def live_runs() -> Iterator[Show]:
    """On a terminal (standard error) a bar for each run; elsewhere a line now and then."""
    lines: dict[str, Progress] = {}
    if not errors.is_terminal:
        yield _plain_lines()
        return
    with Live(console=errors, auto_refresh=False) as live:

        def show(label: str, progress: Progress) -> None:
            lines[label] = progress
            live.update(_bars(lines), refresh=True)

        yield show


def _bars(lines: dict[str, Progress]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    table.add_column("run", overflow="fold")
    table.add_column("", width=BAR)
    for heading in ("done", "left", "simulated", "loss", "accuracy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, progress in lines.items():
        bar = ProgressBar(total=1.0, completed=progress.fraction, width=BAR)
        loss, accuracy = _measured(progress)
        left = clock_time(progress.left) if progress.fraction < 1 else ""
        share, seconds = f"{100 * progress.fraction:.0f} %", simulated(progress.seconds)
        table.add_row(Text(label), bar, share, left, seconds, loss, accuracy)
    return table


def _plain_lines() -> Show:
    last: dict[str, float] = {}

    def show(label: str, progress: Progress) -> None:
        now = time.monotonic()
        if progress.fraction < 1 and now - last.setdefault(label, now) < LINE_EVERY:
            return
        last[label] = now
        say(_line(label, progress))

    return show


def _line(label: str, progress: Progress) -> str:
    """Say how far a run is, the real time left, the simulated time, loss and accuracy."""
    left = f"{clock_time(progress.left)} left" if progress.fraction < 1 else "done"
    loss, accuracy = _measured(progress)
    parts = [
        label,
        f"{100 * progress.fraction:3.0f} %",
        left,
        f"simulated {simulated(progress.seconds)}",
    ]
    parts += [*([f"loss {loss}"] if loss else []), *([f"accuracy {accuracy}"] if accuracy else [])]
    return "  ".join(parts)


def _measured(progress: Progress) -> tuple[str, str]:
    """Return the newest loss and accuracy, empty where there is none."""
    row = progress.row or {}
    if row.get("iteration") == 0 and progress.iteration > 0:
        return "", ""  # of the first model: it says nothing of the run
    loss = row.get("train_loss", row.get("batch_loss", math.nan))
    accuracy = row.get("test_accuracy", row.get("train_accuracy", math.nan))
    return (
        f"{loss:.4g}" if math.isfinite(loss) else "",
        f"{100 * accuracy:.1f} %" if math.isfinite(accuracy) else "",
    )


def simulated(seconds: float) -> str:
    """Write simulated seconds, with three digits where they are few.

    >>> simulated(0.01234), simulated(1234.5)
    ('0.0123 s', '1,234.5 s')
    """
    return f"{seconds:,.1f} s" if seconds >= 10 else f"{seconds:.3g} s"


def clock_time(seconds: float) -> str:
    """Write a time as hours, minutes and seconds; `-` where it is not known yet."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
