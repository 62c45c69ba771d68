"""How every figure looks: for print in two columns, and for readers who see colours differently.

Nothing here touches matplotlib's global state: figures are made and saved inside `drawing()`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["COLOURS", "COLUMN", "DPI", "PAGE", "LineStyle", "drawing", "line_style", "new_figure"]

# Inches: one column and the full width of a two-column paper.
COLUMN = 3.5
PAGE = 7.16
DPI = 200

# Okabe and Ito's palette without yellow, which disappears on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
# 7 colours, 5 dashes and 6 markers: no two of the first 210 curves look alike, and curves that
# are near in colour differ in dashes and marker.
DASHES: tuple[Any, ...] = (
    "-",
    (0, (4.5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (10, 2.5)),
)
MARKERS = ("o", "s", "^", "D", "v", "P")

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same picture on every machine
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7,
    "figure.titlesize": 9.5,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.handlelength": 4.2,  # long enough to tell the dashes apart
    "legend.columnspacing": 1.6,
    "savefig.dpi": DPI,
    "svg.hashsalt": "sdfeel",  # ids from a fixed salt: the same figure gives the same file
    "svg.fonttype": "path",
}


@dataclass(frozen=True)
class LineStyle:
    colour: str
    dashes: Any
    marker: str


def line_style(index: int) -> LineStyle:
    """The look of the curve at this place in the legend."""
    return LineStyle(
        COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)]
    )


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib's defaults with this style, whatever the user has set; put back afterwards."""
    with matplotlib.style.context(["default", STYLE]):
        yield


class _Shown(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with drawing():
            self.savefig(buffer, format="png")
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """A figure that no global list holds, so that it goes when its last user does."""
    figure = _Shown(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
