"""Rows for people: Markdown for documents, Rich for the terminal, HTML for pages."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

Rows = Sequence[Mapping[str, Any]]

NOTHING = "–"
# `seconds` is simulated wherever it is recorded; where people read it, it says so.
HEADINGS = {
    "label": "run",
    "seconds": "simulated s",
    "loss": "training loss",
    "accuracy": "test accuracy",
    "client_steps_per_second": "client steps/s",
}
TIME_TO = "seconds_to_accuracy_"
SPREAD = ("_min", "_max")
# Left to the other forms: 80 columns hold no more.
NOT_ON_A_TERMINAL = ("disagreement", "accuracy_of")


def markdown_table(rows: Rows) -> str:
    """Write a GitHub table, numbers to the right; values cannot break out of their cell."""
    headings, body, right = _cells(rows)
    rule = ["---:" if is_number else "---" for is_number in right]
    lines = [[_markdown(text) for text in cells] for cells in (headings, *body)]
    lines.insert(1, rule)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) if headings else ""


def rich_table(rows: Rows, title: str | None = None) -> Table:
    """Make a table for `rich.print`; markup in values is shown, not obeyed.

    Made for 80 columns: spreads are left to the other forms, headings are broken between words, and
    a number of seeds that is the same everywhere stands below.
    """
    seeds = {row.get("seeds") for row in rows}
    is_same = len(seeds) == 1 and None not in seeds
    left_out = {*NOT_ON_A_TERMINAL, *(["seeds"] if is_same else [])}
    headings, body, right = _cells(rows, left_out, has_spread=False)
    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        caption=Text(f"medians of {seeds.pop()} seeds") if is_same else None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name, is_number in zip(headings, right, strict=True):
        if is_number:
            broken = "\n".join(name.rsplit(" ", 1))
            table.add_column(Text(broken), justify="right", no_wrap=True)
        else:
            table.add_column(Text(name), min_width=10)
    for cells in body:
        table.add_row(*(Text(text) for text in cells))
    return table


def html_table(rows: Rows) -> str:
    """Write a table element, every value escaped; a spread stands below its value."""
    headings, body, right = _cells(rows)

    def line(kind: str, texts: Sequence[str]) -> str:
        cells = []
        for text, is_number in zip(texts, right, strict=True):
            inside = html.escape(text)
            if is_number and kind == "td":
                inside = re.sub(r" \((.*)\)$", r'<span class="spread">\1</span>', inside)
            class_of = ' class="number"' if is_number else ""
            cells.append(f"<{kind}{class_of}>{inside}</{kind}>")
        return f"<tr>{''.join(cells)}</tr>\n"

    lines = "".join(line("td", cells) for cells in body)
    table = f"<thead>{line('th', headings)}</thead>\n<tbody>\n{lines}</tbody>"
    return f"<table>\n{table}\n</table>\n" if headings else ""


def format_value(value: object, key: str = "") -> str:
    """Write a value as people read it; `key` tells times and shares apart from other numbers."""
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


def heading(key: str) -> str:
    """Return what people call a column.

    >>> heading("seconds")
    'simulated s'
    """
    if key.startswith(TIME_TO):
        return f"s to {100 * float(key.removeprefix(TIME_TO)):g}\u00a0%"
    return HEADINGS.get(key, key.replace("_", " "))


def column_headings(keys: Iterable[str]) -> dict[str, str]:
    """Return the headings of a table; `accuracy` alone where some are not of test samples."""
    names = {key: heading(key) for key in keys}
    return names | {"accuracy": "accuracy"} if "accuracy_of" in names else names


def _number(value: float, key: str) -> str:
    if math.isnan(value):
        return NOTHING
    if not math.isfinite(value):
        return str(value)
    if key.startswith("seconds"):
        return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"
    if key.startswith("accuracy"):
        return f"{100 * value:.1f} %"
    return f"{value:.4g}"


def _cells(
    rows: Rows, left_out: Iterable[str] = (), has_spread: bool = True
) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return headings, cells, and which columns hold numbers.

    `x_min` and `x_max` stand in brackets behind `x`; schemes that the labels name already are
    left out.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row))
    names = column_headings(keys)
    keys = [key for key in keys if key not in left_out]
    if all(str(row.get("scheme")) in str(row.get("label")) for row in rows):
        keys = [key for key in keys if key != "scheme"]
    shown = [key for key in keys if not (key.endswith(SPREAD) and key[:-4] in keys)]
    body = [[_cell(row, key, has_spread) for key in shown] for row in rows]
    is_number = [
        key.startswith(TIME_TO) or any(isinstance(row.get(key), int | float) for row in rows)
        for key in shown
    ]
    return [names[key] for key in shown], body, is_number


def _cell(row: Mapping[str, Any], key: str, has_spread: bool) -> str:
    text = format_value(row.get(key), key)
    low, high = (row.get(key + end) for end in SPREAD)
    if not has_spread or low is None or high is None or low == high:
        return text
    return f"{text} ({format_value(low, key).removesuffix(' %')}–{format_value(high, key)})"


def _markdown(text: str) -> str:
    # Backslashes first, or they would free the pipe that is escaped after them.
    escaped = html.escape(text, quote=False).replace("\\", "\\\\").replace("|", "\\|")
    return " ".join(escaped.split())
