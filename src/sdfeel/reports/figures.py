"""Curves over iterations and over simulated time, laid out as in the paper."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sdfeel.errors import InputError, closest
from sdfeel.files import write_report
from sdfeel.reports.bands import BAND_NAMES, Band, BandKind, band
from sdfeel.reports.labels import label_ends
from sdfeel.reports.style import (
    COLUMN,
    PAGE,
    LineStyle,
    drawing,
    legend_below,
    line_styles,
    new_figure,
)  # fmt: skip

# One table per label, or one per seed.
Curves = Mapping[str, pd.DataFrame | Sequence[pd.DataFrame]]
Bands = Mapping[str, Band | None]

PANEL_HEIGHT = 2.45
IN_MINUTES_FROM = 600.0  # seconds
TITLE_WIDTH, NOTE_WIDTH = 13, 16  # characters that fit in an inch
TITLE_LINE = 0.17  # inches
FEW_POINTS = 15
BAND_FILL, BAND_EDGE = 0.12, 0.6  # opacity
# What others write, and would become c.jpg.png here.
OTHER_KINDS = {".bmp", ".eps", ".gif", ".html", ".jpeg", ".jpg", ".ps", ".tif", ".tiff", ".webp"}

NAMES = {
    "train_loss": "training loss",
    "train_accuracy": "training accuracy",
    "batch_loss": "mini-batch loss",
    "disagreement": "disagreement of the servers",
    "server_accuracy_min": "test accuracy of the worst server",
    "server_accuracy_mean": "servers' mean accuracy",
    "server_accuracy_max": "test accuracy of the best server",
}


@dataclass(frozen=True)
class Panel:
    """A set of axes: `y` over `x` for some curves; `title` is what the panel is called."""

    curves: Curves
    x: str = "seconds"
    y: str = "train_loss"
    title: str | None = None
    log: bool = False


def plot_curves(
    curves: Curves,
    x: str = "seconds",
    y: str = "train_loss",
    *,
    title: str | None = None,
    spread: BandKind = "range",
    until: float | None = None,
    log: bool = False,
) -> Figure:
    """Draw one panel, one column wide: for each label the median over its seeds with a band.

    Args:
        curves: by label, one table of metrics or one for each seed.
        x: a column: simulated "seconds", or "iteration".
        y: another column.
        title: of the figure.
        spread: what the band spans: "range" is min to max, "quartiles" the middle half.
        until: where the x axis ends, in the unit of the column.
        log: whether the y axis is logarithmic.
    """
    panel = Panel(curves, x, y, log=log)
    if not any(_bands(panel, spread).values()):
        columns = {str(name) for frames in curves.values() for f in _frames(frames) for name in f}
        missing = y if y not in columns else x
        raise InputError("column", missing, f"no curve has it; {closest(missing, columns)}")
    return _figure([panel], title, spread, until, COLUMN)


def figure_of_metrics(
    curves: Curves,
    *,
    title: str | None = None,
    spread: BandKind = "range",
    until: float | None = None,
    x: str = "seconds",
) -> Figure:
    """Draw training loss and every metric over simulated time: figure 3 of the paper.

    Metrics are those on test samples where there are any. At most four panels: the loss and the
    first three metrics.
    """
    frames = chain.from_iterable(_frames(of) for of in curves.values())
    columns = list(dict.fromkeys(str(name) for frame in frames for name in frame))
    names = [c.partition("_")[2] for c in columns if c.startswith(("test_", "train_"))]
    metrics = [name for name in dict.fromkeys(names) if name != "loss"] or ["loss"]
    chosen = [f"test_{n}" if f"test_{n}" in columns else f"train_{n}" for n in metrics[:3]]
    panels = [Panel(curves, x, column) for column in dict.fromkeys(["train_loss", *chosen])]
    return figure_panels(panels, title=title, spread=spread, until=until)


def figure_panels(
    panels: Sequence[Panel],
    *,
    title: str | None = None,
    spread: BandKind = "range",
    until: float | None = None,
) -> Figure:
    """Draw panels side by side over the full page, lettered (a), (b), ...

    One legend below has the curves of all panels, and a curve looks the same in each. A panel whose
    column nobody recorded says so and stays empty.
    """
    if not panels:
        raise InputError("panels", panels, "at least one")
    return _figure(panels, title, spread, until, PAGE)


def save_figure(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write `path`.png and `path`.svg; the same figure gives the same SVG, byte for byte.

    A path that ends with .pdf becomes that one file.
    """
    stem = Path(path)
    if not stem.name or stem.suffix.lower() in OTHER_KINDS:
        raise InputError("path", str(path), "a file that ends with .png, .svg or .pdf")
    if stem.suffix.lower() == ".pdf":
        write_report(stem, figure_bytes(figure, "pdf"))
        return stem, stem
    if stem.suffix.lower() in {".png", ".svg"}:
        stem = stem.with_suffix("")
    png, svg = (stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg"))
    write_report(png, figure_bytes(figure, "png"))
    write_report(svg, figure_bytes(figure, "svg"))
    return png, svg


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """Return the content of a "png", "svg" or "pdf" file, without date or version in it."""
    metadata = {
        "svg": {"Date": None, "Creator": "sdfeel"},
        "pdf": {"CreationDate": None, "Creator": "sdfeel", "Producer": None},
    }.get(kind, {"Software": None})
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def _frames(of: pd.DataFrame | Sequence[pd.DataFrame]) -> Sequence[pd.DataFrame]:
    return [of] if isinstance(of, pd.DataFrame) else of


def _bands(panel: Panel, spread: BandKind) -> dict[str, Band | None]:
    if not panel.curves:
        raise InputError("curves", {}, "at least one curve to draw")
    return {
        label: band(_frames(frames), panel.x, panel.y, spread)
        for label, frames in panel.curves.items()
    }


def _figure(
    panels: Sequence[Panel],
    title: str | None,
    spread: BandKind,
    until: float | None,
    width: float,
) -> Figure:
    labels = list(dict.fromkeys(chain.from_iterable(panel.curves for panel in panels)))
    looks = line_styles(labels)
    with drawing():
        figure = new_figure(width, PANEL_HEIGHT)
        axes = list(figure.subplots(1, len(panels), squeeze=False)[0])
        bands = [_bands(panel, spread) for panel in panels]
        handles: dict[str, Line2D] = {}
        for on, panel, of in zip(axes, panels, bands, strict=True):
            # A line that was drawn in any panel stands for the curve.
            handles = _draw(on, panel, of, looks, until) | handles
            _name_axes(on, panel)
        if len(panels) > 1:
            for letter, on, panel in zip("abcdefghijkl", axes, panels, strict=False):
                on.set_title(f"({letter}) {panel.title or _name(panel.y)}")
        elif panels[0].title:
            axes[0].set_title(panels[0].title)
        if title:
            rows = textwrap.wrap(title, int(width * TITLE_WIDTH))
            figure.suptitle("\n".join(rows))
            figure.set_figheight(PANEL_HEIGHT + TITLE_LINE * len(rows))
        gaps = [_gap(panel, of) for panel, of in zip(panels, bands, strict=True)]
        notes = [line for line in [_seeds_note(bands, spread), *gaps] if line]
        note = "\n".join(textwrap.fill(line, int(width * NOTE_WIDTH)) for line in notes)
        lines = [
            handles.get(label) or Line2D([], [], **_look(label, looks, " (not recorded)"))
            for label in labels
        ]
        has_labels = len(handles) == len(labels) and label_ends(figure, axes[-1], labels)
        legend_below(figure, [] if has_labels else lines, note)
    return figure


def _look(label: str, looks: Mapping[str, LineStyle], also: str = "") -> dict[str, Any]:
    """Return what matplotlib wants to know of a curve, and what the legend calls it."""
    return {
        "label": ("\n".join(textwrap.wrap(label, 44)) or label) + also,
        "color": looks[label].colour,
        "linestyle": looks[label].dashes,
        "marker": looks[label].marker,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }


def _draw(
    axes: Axes, panel: Panel, bands: Bands, looks: Mapping[str, LineStyle], until: float | None
) -> dict[str, Line2D]:
    """Draw the curves of a panel; return the lines by label."""
    longest = max((float(of.x[-1]) for of in bands.values() if of is not None), default=0.0)
    longest = min(longest, until) if until is not None else longest
    in_minutes = panel.x == "seconds" and longest >= IN_MINUTES_FROM
    unit = 60.0 if in_minutes else 1.0
    lines = {}
    for index, (label, of) in enumerate(bands.items()):
        if of is None:
            continue
        # Markers tell lines apart without colour; staggered, they do not hide each other.
        every = 1 if len(of.x) <= FEW_POINTS else (0.02 + 0.03 * (index % 4), 0.14)
        look, x = _look(label, looks), of.x / unit
        (lines[label],) = axes.plot(x, of.middle, markevery=every, **look)
        if of.seeds > 1:
            # An edge in the dashes of the curve: bands that overlap stay two bands.
            fill, edge = ((look["color"], alpha) for alpha in (BAND_FILL, BAND_EDGE))
            axes.fill_between(
                x, of.low, of.high, facecolor=fill, edgecolor=edge, linewidth=0.6,
                linestyle=look["linestyle"],
            )  # fmt: skip
    if not lines:
        axes.text(0.5, 0.5, "not recorded", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
    if until is not None:
        axes.set_xlim(right=until / unit)
    if panel.x == "seconds":
        axes.set_xlabel(f"simulated time ({'min' if in_minutes else 's'})")
    return lines


def _name_axes(axes: Axes, panel: Panel) -> None:
    axes.margins(x=0.02)
    axes.set_ylabel(_name(panel.y))
    if panel.x != "seconds":
        axes.set_xlabel(_name(panel.x))
    if panel.x == "iteration":
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if panel.log:
        axes.set_yscale("log", nonpositive="mask")
    if "accuracy" in panel.y or panel.y.endswith("_share"):
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")


def _name(column: str) -> str:
    return NAMES.get(column, column.replace("_", " "))


def _seeds_note(panels: Sequence[Bands], spread: BandKind) -> str:
    """Say what lines and bands are, once there is more than one seed."""
    counts = sorted({of.seeds for bands in panels for of in bands.values() if of is not None})
    if not counts or counts[-1] == 1:
        return ""
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"line: median of {seeds} seeds; band: {BAND_NAMES[spread]}"


def _gap(panel: Panel, bands: Bands) -> str | None:
    """Say which curves a panel lacks while it has others: a legend alone would promise them."""
    lacking = [label for label, of in bands.items() if of is None]
    if not lacking or len(lacking) == len(bands):
        return None
    return f"{_name(panel.y)} not recorded: {', '.join(lacking)}"
