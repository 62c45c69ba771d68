"""What the commands share: where they print, and the live display of a run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from sdfeel.simulation.listening import Progress

__all__ = ["JsonFlag", "SetOption", "console", "errors", "live_runs", "print_json", "say"]

console = Console()
errors = Console(stderr=True)


def say(text: str, style: str = "") -> None:
    """A line for people on standard error, as it is: no markup, no wrapping."""
    errors.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: schedule.tau1=3."),
]

COLUMNS = (
    "run", "iteration", "simulated s", "evaluated at", "loss", "accuracy", "client steps/s",
    "time left",
)  # fmt: skip
# Without a terminal, a line at most this often (seconds).
LINE_EVERY = 10.0


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
    """A table on the terminal (standard error) with a line for each run, kept up to date."""
    lines: dict[str, tuple[str, ...]] = {}
    if not errors.is_terminal:
        yield _plain_lines()
        return
    with Live(console=errors, auto_refresh=False) as live:

        def show(label: str, progress: Progress) -> None:
            lines[label] = _cells(label, progress)
            table = Table(*COLUMNS, box=None, pad_edge=False)
            for cells in lines.values():
                table.add_row(*cells)
            live.update(table, refresh=True)

        yield show


def _plain_lines() -> Show:
    last: dict[str, float] = {}

    def show(label: str, progress: Progress) -> None:
        now = time.monotonic()
        if progress.fraction < 1 and now - last.get(label, -math.inf) < LINE_EVERY:
            return
        last[label] = now
        cells = zip(COLUMNS, _cells(label, progress), strict=True)
        text = "  ".join(f"{name} {cell}" for name, cell in cells)
        say(text)

    return show


def _cells(label: str, progress: Progress) -> tuple[str, ...]:
    row = progress.row or {}
    loss = row.get("train_loss", row.get("batch_loss", math.nan))
    accuracy = row.get("test_accuracy", row.get("train_accuracy", math.nan))
    return (
        label,
        f"{progress.iteration}",
        f"{progress.seconds:.1f}",
        f"{row['iteration']:.0f}" if "iteration" in row else "-",
        f"{loss:.4f}",
        f"{accuracy:.1%}" if math.isfinite(accuracy) else "-",
        f"{progress.client_steps_per_second:,.0f}",
        _clock(progress.left) if progress.fraction < 1 else "done",
    )


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
