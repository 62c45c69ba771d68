"""Rows for people: Markdown for documents, Rich for the terminal, HTML for pages."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

__all__ = ["format_value", "html_table", "markdown_table", "rich_table"]

Rows = Sequence[Mapping[str, Any]]

NOTHING = "–"
HEADINGS = {
    "label": "run",
    "iterations": "iterations",
    "seconds": "simulated time",
    "loss": "training loss",
    "accuracy": "test accuracy",
    "client_steps_per_second": "client steps/s",
}
TIME_TO = re.compile(r"seconds_to_(accuracy|loss)_(.+)")
SPREAD = ("_min", "_max")
# Headings for a terminal, where every column counts.
BROKEN = {
    "iterations": "itera-\ntions",
    "simulated time": "sim.\ntime",
    "training loss": "train\nloss",
    "test accuracy": "test\nacc.",
    "disagreement": "dis-\nagree",
}


def markdown_table(rows: Rows) -> str:
    """A GitHub table, numbers to the right; values cannot break out of their cell."""
    headings, body, right = _cells(rows)
    lines = [headings, ["---:" if number else "---" for number in right], *body]
    lines[0] = [_markdown(text) for text in headings]
    lines[2:] = [[_markdown(text) for text in cells] for cells in body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) if headings else ""


def rich_table(rows: Rows, title: str | None = None) -> Table:
    """For `rich.print`; markup in values is shown, not obeyed.

    Made for 80 columns: spreads are left to the other forms, headings are broken, and a number of
    seeds that is the same everywhere stands below.
    """
    seeds = {row.get("seeds") for row in rows}
    caption = None
    if len(seeds) == 1 and None not in seeds:
        rows = [{key: value for key, value in row.items() if key != "seeds"} for row in rows]
        caption = Text(f"medians of {seeds.pop()} seeds")
    headings, body, right = _cells(rows, spread=False)
    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for heading, number in zip(headings, right, strict=True):
        if number:
            broken = BROKEN.get(heading, heading.replace(" ", "\n", 1))
            table.add_column(Text(broken), justify="right", no_wrap=True)
        else:
            table.add_column(Text(heading), min_width=10)
    for cells in body:
        table.add_row(*(Text(text) for text in cells))
    return table


def html_table(rows: Rows) -> str:
    """A table element, every value escaped; the spread stands below its value."""
    headings, body, right = _cells(rows)

    def cell(kind: str, text: str, number: bool) -> str:
        if not number:
            return f"<{kind}>{html.escape(text)}</{kind}>"
        value, bracket, spread = text.partition(" (")
        inside = html.escape(text)
        if kind == "td" and bracket and spread.endswith(")"):
            inside = f'{html.escape(value)}<span class="spread">{html.escape(spread[:-1])}</span>'
        return f'<{kind} class="number">{inside}</{kind}>'

    def line(kind: str, texts: Sequence[str]) -> str:
        cells = (cell(kind, text, number) for text, number in zip(texts, right, strict=True))
        return f"<tr>{''.join(cells)}</tr>\n"

    lines = "".join(line("td", cells) for cells in body)
    return (
        f"<table>\n<thead>{line('th', headings)}</thead>\n<tbody>\n{lines}</tbody>\n</table>\n"
        if headings
        else ""
    )


def format_value(value: object, key: str = "") -> str:
    """A value as people read it; `key` tells times and accuracies apart from other numbers."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value, key)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value) or NOTHING
    return str(value)


def _number(value: float, key: str) -> str:
    if math.isnan(value):
        return NOTHING
    if not math.isfinite(value):
        return str(value)
    if key.startswith("seconds"):
        return _time(value)
    if key.startswith("accuracy"):
        return f"{100 * value:.1f} %"
    return f"{value:.4g}"


def _time(seconds: float) -> str:
    if seconds >= 600:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.3g} s"


def _heading(key: str) -> str:
    if found := TIME_TO.fullmatch(key):
        what, level = found.groups()
        return f"to {100 * float(level):g}\u00a0%" if what == "accuracy" else f"to loss {level}"
    return HEADINGS.get(key, key.replace("_", " "))


def _cells(rows: Rows, spread: bool = True) -> tuple[list[str], list[list[str]], list[bool]]:
    """Headings, cells, and which columns hold numbers.

    `x_min` and `x_max` stand in brackets behind `x`; schemes that the labels name already are
    left out.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if all(str(row.get("scheme")) in str(row.get("label")) for row in rows):
        keys = [key for key in keys if key != "scheme"]
    shown = [key for key in keys if not (key.endswith(SPREAD) and key[:-4] in keys)]
    cell = _with_spread if spread else _plain
    body = [[cell(row, key) for key in shown] for row in rows]
    right = [
        any(isinstance(row.get(key), int | float) for row in rows)
        or TIME_TO.fullmatch(key) is not None
        for key in shown
    ]
    return [_heading(key) for key in shown], body, right


def _plain(row: Mapping[str, Any], key: str) -> str:
    return format_value(row.get(key), key)


def _with_spread(row: Mapping[str, Any], key: str) -> str:
    text = _plain(row, key)
    low, high = (row.get(key + end) for end in SPREAD)
    if low is None or high is None or low == high:
        return text
    return f"{text} ({format_value(low, key).removesuffix(' %')}–{format_value(high, key)})"


def _markdown(text: str) -> str:
    # Backslashes first, or they would free the pipe that is escaped after them.
    escaped = html.escape(text, quote=False).replace("\\", "\\\\").replace("|", "\\|")
    return " ".join(escaped.split())
