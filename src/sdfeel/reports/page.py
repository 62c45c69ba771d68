"""One HTML file that holds a whole report: it can be mailed, and opens without a network."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sdfeel.errors import InputError
from sdfeel.files import write_report
from sdfeel.reports.figures import figure_bytes
from sdfeel.reports.rendering import html_table
from sdfeel.reports.settings import flatten, setting_text

__all__ = ["write_page"]

# Figures stay dark on white in both modes: their colours were chosen for white.
CSS = """
:root { color-scheme: light dark; --ink: #1d2329; --dim: #5b6670; --rule: #d8dde2;
  --paper: #ffffff; --band: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --dim: #9aa5af; --rule: #3a424a; --paper: #15191d; --band: #1e242a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { max-width: 46rem; }
figure { margin: 1rem 0; }
figure img { display: block; width: 100%; height: auto; background: #fff; padding: .75rem;
  border: 1px solid var(--rule); border-radius: 6px; }
figure img.narrow { max-width: 36rem; }
figcaption { color: var(--dim); font-size: .9rem; margin-top: .4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .35rem .7rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
th { vertical-align: bottom; }
td:first-child { min-width: 8rem; }
th { font-weight: 600; }
thead th { border-bottom: 2px solid var(--rule); }
tbody tr:nth-child(even) { background: var(--band); }
td.number { white-space: nowrap; }
.spread { display: block; color: var(--dim); font-size: .85em; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.pairs { columns: 2 24rem; column-gap: 2.5rem; margin: 0; font-size: .9rem; }
.pairs div { display: flex; justify-content: space-between; gap: 1rem; padding: .25rem 0;
  border-bottom: 1px solid var(--rule); break-inside: avoid; }
.pairs dt { color: var(--dim); flex: none; }
.pairs dd { margin: 0; text-align: right; overflow-wrap: anywhere; min-width: 0; }
@media print { body { max-width: none; padding: 0; } figure, table { break-inside: avoid; } }
"""

TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
NARROW = 5.0  # inches: figures of one column are not blown up to the whole page


def write_page(
    path: str | Path,
    title: str,
    figures: Mapping[str, Figure | str | Path],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    *,
    environment: Mapping[str, Any] | None = None,
) -> Path:
    """Write the page, whole or not at all.

    figures      by caption: a Figure, or the path of an SVG or PNG file
    tables       by heading: rows as `compare_table` makes them, or any others
    settings     what was asked for, nested or flat
    notes        paragraphs that stand at the top
    environment  on what it was computed
    Every word that comes from outside is escaped, and pictures stand in `img` elements, in which
    no script runs.
    """
    target = Path(path)
    parts = [f"<h1>{html.escape(title)}</h1>\n"]
    parts += [f"<p>{html.escape(note)}</p>\n" for note in notes]
    parts += [_picture(caption, figure) for caption, figure in figures.items()]
    for heading, rows in tables.items():
        body = html_table(rows) or "<p>Nothing to show.</p>\n"
        parts.append(f'<h2>{html.escape(heading)}</h2>\n<div class="scroll">\n{body}</div>\n')
    parts.append(_pairs("Settings", settings))
    if environment:
        parts.append(_pairs("Environment", environment))
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n{''.join(parts)}</body>\n</html>\n"
    )
    # A lone surrogate in a name from a file must not lose the report.
    write_report(target, page.encode("utf-8", errors="replace"))
    return target


def _picture(caption: str, figure: Figure | str | Path) -> str:
    if isinstance(figure, Figure):
        content, kind = figure_bytes(figure, "svg"), TYPES[".svg"]
        narrow = ' class="narrow"' if figure.get_figwidth() < NARROW else ""
    else:
        content, kind = _read_picture(Path(figure))
        narrow = ""
    text = html.escape(caption)
    data = base64.b64encode(content).decode("ascii")
    return (
        f'<figure>\n<img{narrow} alt="{text}" src="data:{kind};base64,{data}">\n'
        f"<figcaption>{text}</figcaption>\n</figure>\n"
    )


def _read_picture(path: Path) -> tuple[bytes, str]:
    kind = TYPES.get(path.suffix.lower())
    if kind is None:
        raise InputError("figure", str(path), "must be a file that ends in .svg or .png")
    try:
        return path.read_bytes(), kind
    except OSError as problem:
        raise InputError("figure", str(path), f"cannot be read: {problem.strerror}") from None


def _pairs(heading: str, values: Mapping[str, Any]) -> str:
    flat = flatten(values)
    if not flat:
        return ""
    lines = "".join(
        f"<div><dt>{html.escape(str(key))}</dt><dd>{html.escape(setting_text(value))}</dd></div>\n"
        for key, value in flat.items()
    )
    return f'<h2>{html.escape(heading)}</h2>\n<dl class="pairs">\n{lines}</dl>\n'
