"""Curves over iterations and over simulated time, laid out as in the paper."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sdfeel.errors import InputError, closest
from sdfeel.files import write_report
from sdfeel.reports.bands import Band, BandKind, band
from sdfeel.reports.legends import any_drawn, legend_below, legend_height, seeds_note
from sdfeel.reports.style import COLUMN, PAGE, drawing, line_style, new_figure

__all__ = [
    "Curves",
    "Panel",
    "figure_bytes",
    "figure_of_metrics",
    "figure_over_time",
    "figure_panels",
    "plot_curves",
    "save_figure",
]

# One table per label, or one per seed.
Curves = Mapping[str, pd.DataFrame | Sequence[pd.DataFrame]]

PANEL_HEIGHT = 2.45
IN_MINUTES_FROM = 600.0  # seconds
TITLE_WIDTH, NOTE_WIDTH = 13, 16  # characters that fit in an inch
FEW_POINTS = 15
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
    """One set of axes: `y` over `x` for some curves; `title` is what the panel is called."""

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
    """One panel, one column wide: for each label the median over its seeds with a band.

    spread  what the band spans: "range" is min to max, "quartiles" the middle half; the legend says
    until   where the x axis ends, in the unit of the column
    log     a logarithmic y axis
    """
    panel = Panel(curves, x, y, log=log)
    if all(found is None for found in _bands(panel, spread).values()):
        columns = {str(name) for frames in curves.values() for f in _list(frames) for name in f}
        missing = y if y not in columns else x
        raise InputError("column", missing, f"no curve has it; {closest(missing, columns)}")
    return _figure([panel], title, spread, until, COLUMN)


def figure_over_time(
    curves: Curves,
    *,
    title: str | None = None,
    spread: BandKind = "range",
    until: float | None = None,
) -> Figure:
    """Figure 3 of the paper: (a) training loss and (b) test accuracy over simulated time."""
    panels = [Panel(curves, "seconds", "train_loss"), Panel(curves, "seconds", "test_accuracy")]
    return figure_panels(panels, title=title, spread=spread, until=until)


def figure_of_metrics(
    curves: Curves,
    *,
    title: str | None = None,
    spread: BandKind = "range",
    until: float | None = None,
    x: str = "seconds",
) -> Figure:
    """Training loss and every metric over simulated time, on test samples where there are any.

    At most four panels: the loss and the first three metrics.
    """
    columns = list(dict.fromkeys(str(n) for own in curves.values() for f in _list(own) for n in f))
    names = [c.partition("_")[2] for c in columns if c.startswith(("test_", "train_"))]
    metrics = [name for name in dict.fromkeys(names) if name != "loss"] or ["loss"]
    chosen = [f"test_{n}" if f"test_{n}" in columns else f"train_{n}" for n in metrics[:3]]
    shown = dict.fromkeys(["train_loss", *chosen])
    panels = [Panel(curves, x, column) for column in shown]
    return figure_panels(panels, title=title, spread=spread, until=until)


def figure_panels(
    panels: Sequence[Panel],
    *,
    title: str | None = None,
    spread: BandKind = "range",
    until: float | None = None,
) -> Figure:
    """Panels side by side over the full page, lettered (a), (b), ...

    Panels with the same labels share one legend below them; otherwise each has its own. A panel
    whose column nobody recorded says so and stays empty.
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
    """The figure as the content of a "png", "svg" or "pdf" file, without date or version in it."""
    metadata = {
        "svg": {"Date": None, "Creator": "sdfeel"},
        "pdf": {"CreationDate": None, "Creator": "sdfeel", "Producer": None},
    }.get(kind, {"Software": None})
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def _list(frames: pd.DataFrame | Sequence[pd.DataFrame]) -> Sequence[pd.DataFrame]:
    return [frames] if isinstance(frames, pd.DataFrame) else frames


def _bands(panel: Panel, spread: BandKind) -> dict[str, Band | None]:
    if not panel.curves:
        raise InputError("curves", {}, "at least one curve to draw")
    return {
        label: band(_list(frames), panel.x, panel.y, spread)
        for label, frames in panel.curves.items()
    }


def _figure(
    panels: Sequence[Panel],
    title: str | None,
    spread: BandKind,
    until: float | None,
    width: float,
) -> Figure:
    with drawing():
        figure = new_figure(width, PANEL_HEIGHT)
        axes = list(figure.subplots(1, len(panels), squeeze=False)[0])
        found = [_bands(panel, spread) for panel in panels]
        handles = [
            _draw(on, panel, bands, until)
            for on, panel, bands in zip(axes, panels, found, strict=True)
        ]
        lettered = len(panels) > 1
        for letter, on, panel in zip("abcdefghijkl", axes, panels, strict=False):
            name = panel.title or (_name(panel.y) if lettered else None)
            if name:
                on.set_title(f"({letter}) {name}" if lettered else name)
        extra = 0.0
        if title:
            lines = textwrap.wrap(title, int(width * TITLE_WIDTH))
            figure.suptitle("\n".join(lines))
            extra += 0.17 * len(lines)
        if all(list(panel.curves) == list(panels[0].curves) for panel in panels):
            gaps = [_gap(panel, bands) for panel, bands in zip(panels, found, strict=True)]
            says = [line for line in [seeds_note(found, spread), *gaps] if line]
            note = "\n".join(textwrap.fill(line, int(width * NOTE_WIDTH)) for line in says)
            extra += legend_height(legend_below(figure, None, any_drawn(handles), width, note))
        else:
            extra += max(
                legend_height(
                    legend_below(figure, on, lines, width / len(panels), seeds_note([of], spread))
                )
                for on, lines, of in zip(axes, handles, found, strict=True)
            )
        # The legend has a place of its own below the panels, which keep their height.
        figure.set_size_inches(width, PANEL_HEIGHT + extra)
    return figure


def _draw(
    axes: Axes, panel: Panel, bands: Mapping[str, Band | None], until: float | None
) -> list[Line2D]:
    longest = max((float(b.x[-1]) for b in bands.values() if b is not None), default=0.0)
    longest = min(longest, until) if until is not None else longest
    unit = 60.0 if panel.x == "seconds" and longest >= IN_MINUTES_FROM else 1.0
    handles = []
    for index, (label, found) in enumerate(bands.items()):
        look = line_style(index)
        shown = "\n".join(textwrap.wrap(label, 44)) or label
        kind = {
            "color": look.colour,
            "linestyle": look.dashes,
            "marker": look.marker,
            "markeredgecolor": "white",
            "markeredgewidth": 0.4,
        }
        if found is None:
            handles.append(Line2D([], [], label=f"{shown} (not recorded)", **kind))
            continue
        # Markers tell lines apart without colour; staggered, they do not hide each other.
        every = 1 if len(found.x) <= FEW_POINTS else (0.02 + 0.03 * (index % 4), 0.14)
        (line,) = axes.plot(found.x / unit, found.middle, label=shown, markevery=every, **kind)
        if found.seeds > 1:
            axes.fill_between(
                found.x / unit, found.low, found.high, color=look.colour, alpha=0.18, linewidth=0
            )
        handles.append(line)
    if all(found is None for found in bands.values()):
        axes.text(0.5, 0.5, "not recorded", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
    axes.margins(x=0.02)
    if until is not None:
        axes.set_xlim(right=until / unit)
    if panel.log:
        axes.set_yscale("log", nonpositive="mask")
    if panel.x == "seconds":
        axes.set_xlabel("simulated time (min)" if unit > 1 else "simulated time (s)")
    else:
        axes.set_xlabel(_name(panel.x))
        if panel.x == "iteration":
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_ylabel(_name(panel.y))
    return handles


def _name(column: str) -> str:
    return NAMES.get(column, column.replace("_", " "))


def _gap(panel: Panel, bands: Mapping[str, Band | None]) -> str | None:
    """Says which curves a panel lacks while it has others: a legend alone would promise them."""
    lacking = [label for label, found in bands.items() if found is None]
    if not lacking or len(lacking) == len(bands):
        return None
    return f"{_name(panel.y)} not recorded: {', '.join(lacking)}"
