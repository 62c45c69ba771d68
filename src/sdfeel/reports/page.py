"""One HTML file that holds a whole report: it can be mailed, and opens without a network."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from matplotlib.figure import Figure

from sdfeel.files import write_report
from sdfeel.records.folder import flatten
from sdfeel.reports.figures import figure_bytes
from sdfeel.reports.rendering import html_table
from sdfeel.reports.settings import setting_text

NARROW = 5.0  # inches: figures of one column are not blown up to the whole page


def write_page(
    path: str | Path,
    title: str,
    figures: Mapping[str, Figure],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    *,
    environment: Mapping[str, Any] | None = None,
    links: Mapping[str, str] | None = None,
) -> Path:
    """Write the page, whole or not at all.

    Every word that comes from outside is escaped, and pictures stand in `img` elements, in which
    no script runs.

    Args:
        path: the file.
        title: of the page.
        figures: by caption.
        tables: by heading: rows as `compare_table` makes them, or any others.
        settings: of the runs, nested or flat.
        notes: paragraphs that stand at the top.
        environment: on what it was computed.
        links: files beside it, with the words of each link.
    """
    css = resources.files("sdfeel.reports").joinpath("page.css").read_text("utf-8")
    parts = [f"<h1>{html.escape(title)}</h1>\n"]
    parts += [f"<p>{html.escape(note)}</p>\n" for note in notes]
    parts += [
        f'<p><a href="{html.escape(quote(file))}">{html.escape(words)}</a></p>\n'
        for file, words in (links or {}).items()
    ]
    parts += [_picture(caption, figure) for caption, figure in figures.items()]
    for heading, rows in tables.items():
        body = html_table(rows) or "<p>Nothing to show.</p>\n"
        parts.append(f'<h2>{html.escape(heading)}</h2>\n<div class="scroll">\n{body}</div>\n')
    parts += [_pairs("Settings", settings), _pairs("Environment", environment or {})]
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{css}</style>\n</head>\n"
        f"<body>\n{''.join(parts)}</body>\n</html>\n"
    )
    # A lone surrogate in a name from a file must not lose the report.
    write_report(Path(path), page.encode("utf-8", errors="replace"))
    return Path(path)


def _picture(caption: str, figure: Figure) -> str:
    narrow = ' class="narrow"' if figure.get_figwidth() < NARROW else ""
    text = html.escape(caption)
    data = base64.b64encode(figure_bytes(figure, "svg")).decode("ascii")
    return (
        f'<figure>\n<img{narrow} alt="{text}" src="data:image/svg+xml;base64,{data}">\n'
        f"<figcaption>{text}</figcaption>\n</figure>\n"
    )


def _pairs(heading: str, values: Mapping[str, Any]) -> str:
    lines = "".join(
        f"<div><dt>{html.escape(str(key))}</dt><dd>{html.escape(setting_text(value))}</dd></div>\n"
        for key, value in flatten(values).items()
    )
    return f'<h2>{html.escape(heading)}</h2>\n<dl class="pairs">\n{lines}</dl>\n' if lines else ""
