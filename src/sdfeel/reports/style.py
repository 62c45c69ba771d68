"""How every figure looks: for print in two columns, and for readers who see colours differently.

Nothing here touches matplotlib's global state: figures are made and saved inside `drawing()`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import count
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Inches: one column and the full width of a two-column paper.
COLUMN = 3.5
PAGE = 7.16
DPI = 200
MOST_COLUMNS = 6  # of a legend

# Okabe and Ito's palette without yellow, which disappears on white paper, and with grey in place of
# its second blue. The live page has the same order, page/static/style.css.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#808080", "#E69F00")
# What clients and servers do has one colour in figures and on the live page.
ACTIVITIES = {
    "compute": "#0072B2",
    "upload": "#D55E00",
    "exchange": "#009E73",
    "download": "#CC79A7",
    "collect": "#56B4E9",
    "wait": "#C9CDD1",
}
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
# A scheme looks the same in every figure: its place in this list is the number of its look.
SCHEMES = (
    "sd-feel", "hierfavg", "fedavg", "feel", "fedbuff", "fedasync", "d-psgd", "feel-all",
    "sync-sgd", "local",
)  # fmt: skip


@dataclass(frozen=True)
class LineStyle:
    colour: str
    dashes: Any
    marker: str


def line_style(index: int) -> LineStyle:
    """Return the look number `index`."""
    return LineStyle(
        COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)]
    )


def line_styles(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Give each curve of a figure a look of its own.

    The first curve whose label begins with the name of a scheme gets the look of that scheme; the
    others get the first looks that are left, in their order.

    >>> [line_styles([label, "fedavg"])["fedavg"].colour for label in ("a", "sd-feel")]
    ['#009E73', '#009E73']
    """
    numbers: dict[str, int] = {}
    for label in labels:
        scheme = re.split(r"[\s,:(]", label, maxsplit=1)[0]
        if scheme in SCHEMES and SCHEMES.index(scheme) not in numbers.values():
            numbers[label] = SCHEMES.index(scheme)
    free = filter(lambda number: number not in set(numbers.values()), count())
    rest = {label: next(free) for label in labels if label not in numbers}
    return {label: line_style((numbers | rest)[label]) for label in labels}


def legend_below(
    figure: Figure, handles: Sequence[Artist], note: str = "", *, handle: float | None = None
) -> None:
    """Draw a legend below all panels, in rows from left to right; the figure grows by its height.

    Args:
        figure: whose legend it is.
        handles: in the order of the curves.
        note: a line above the entries.
        handle: length of the handles in font sizes, where the style's is not right.
    """
    if not handles and note:
        legend = figure.legend(handles=[], loc="outside lower center", title=note, borderpad=0)
        legend.get_title().set_multialignment("center")
        box = legend.get_window_extent()
        figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
    for columns in range(min(len(handles), MOST_COLUMNS), 0, -1):
        # Matplotlib fills column after column, and people read row after row.
        by_rows = [line for column in range(columns) for line in handles[column::columns]]
        legend = figure.legend(
            handles=by_rows,
            loc="outside lower center",
            ncols=columns,
            handlelength=handle,
            title=note or None,
        )
        legend.get_title().set_multialignment("center")
        box = legend.get_window_extent()
        if columns == 1 or box.width <= 0.97 * figure.get_figwidth() * figure.dpi:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        legend.remove()


@contextmanager
def drawing() -> Iterator[None]:
    """Set matplotlib's defaults and this style; what the user had set is put back afterwards."""
    with (
        resources.as_file(resources.files("sdfeel.reports") / "sdfeel.mplstyle") as style,
        matplotlib.style.context(["default", style]),
    ):
        yield


class _Shown(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with drawing():
            self.savefig(buffer, format="png")
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Make a figure that no global list holds: it is freed when its last user drops it."""
    figure = _Shown(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
