"""Legends with a place of their own below the panels, where no line can run into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from sdfeel.reports.bands import BAND_NAMES, Band, BandKind

__all__ = ["any_drawn", "legend_below", "legend_height", "seeds_note"]

MOST_COLUMNS = 6
BELOW_AXES = 0.42  # inches that tick labels and the axis label take


def seeds_note(found: Sequence[Mapping[str, Band | None]], spread: BandKind) -> str:
    """What lines and bands are, once there is more than one seed."""
    counts = sorted({b.seeds for bands in found for b in bands.values() if b is not None})
    if not counts or counts[-1] == 1:
        return ""
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"line: median of {seeds} seeds; band: {BAND_NAMES[spread]}"


def any_drawn(handles: Sequence[Sequence[Line2D]]) -> list[Line2D]:
    """For each curve a line that was drawn, if any panel has one."""
    return [
        next((line for line in lines if line.axes is not None), lines[0])
        for lines in zip(*handles, strict=True)
    ]


def legend_below(
    figure: Figure,
    axes: Axes | None,
    handles: Sequence[Line2D],
    width: float,
    note: str,
    *,
    handle: float | None = None,
) -> Legend:
    """A legend with as many columns as `width` (inches) allows, below `axes` or all panels.

    handle  length of the handles in font sizes, where the style's is not right
    """
    for columns in range(min(len(handles), MOST_COLUMNS), 0, -1):
        if axes is None:
            legend = figure.legend(
                handles=handles,
                loc="outside lower center",
                ncols=columns,
                title=note or None,
                handlelength=handle,
            )
        else:
            legend = axes.legend(
                handles=handles,
                loc="upper center",
                bbox_to_anchor=(0.5, 0.0),
                bbox_transform=axes.transAxes
                + ScaledTranslation(0, -BELOW_AXES, figure.dpi_scale_trans),
                borderaxespad=0,
                ncols=columns,
                handlelength=handle,
                title=note or None,
            )
        legend.get_title().set_multialignment("center")
        if columns == 1 or legend.get_window_extent().width <= 0.97 * width * figure.dpi:
            break
        legend.remove()
    return legend


def legend_height(legend: Legend) -> float:
    """In inches."""
    figure = legend.get_figure(root=True)
    return float(legend.get_window_extent().height / figure.dpi) if figure is not None else 0.0
