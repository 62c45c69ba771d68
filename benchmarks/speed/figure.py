"""The numbers of a benchmark as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from sdfeel.reports.style import PAGE, drawing, line_style, new_figure

__all__ = ["bench_figure"]


def bench_figure(results: Mapping[str, Any]) -> Figure:
    """Speeds as bars; below, how the cost grows, as far as it was measured."""
    details = results["details"]
    growing = [key for key in ("clients", "servers", "widths") if key in details]
    with drawing():
        figure = new_figure(PAGE, 4.8 if growing else 2.6)
        parts = [figure] if not growing else list(figure.subfigures(2, 1, squeeze=False)[:, 0])
        rows = list(details["settings"].values())
        for axes, setting in zip(_axes(parts[0], len(rows)), rows, strict=True):
            _bars(axes, setting)
        panels = {"clients": _grow_clients, "servers": _grow_servers, "widths": _grow_widths}
        if growing:
            for axes, key in zip(_axes(parts[1], len(growing)), growing, strict=True):
                panels[key](axes, details[key])
    return figure


def _axes(place: Any, count: int) -> Sequence[Axes]:
    axes: Sequence[Axes] = place.subplots(1, count, squeeze=False)[0]
    return axes


def _bars(axes: Axes, setting: Mapping[str, Any]) -> None:
    rows = {who: row for who, row in setting["rows"].items() if row.get("steps_per_second")}
    speeds = [row["steps_per_second"]["median"] for row in rows.values()]
    colours = [line_style(0 if who.startswith("plain loop") else 1).colour for who in rows]
    axes.barh(range(len(rows)), speeds, color=colours)
    names = [who.replace(", ", ",\n") for who in rows]
    axes.set_yticks(range(len(rows)), names, fontsize="small", linespacing=0.85)
    axes.invert_yaxis()
    axes.set(title=setting["short"], xlabel="client steps per second")
    axes.grid(False, axis="y")


def _grow_clients(axes: Axes, found: Mapping[str, Any]) -> None:
    rows = {int(n): row["microseconds_per_step"] for n, row in found.items() if "peak_gb" in row}
    _line(axes, 0, "fast", rows)
    axes.set(xscale="log", title="Clients", xlabel="clients", ylabel="µs per client step")
    axes.set_ylim(bottom=0)


def _grow_servers(axes: Axes, found: Mapping[str, Any]) -> None:
    for index, part in enumerate(("local", "aggregation")):
        key = f"{part}_ms_per_round"
        _line(axes, index, part, {int(n): row[key] for n, row in found.items() if key in row})
    axes.set(xscale="log", title="Servers", xlabel="servers", ylabel="ms per round")
    axes.set_ylim(bottom=0, top=1.35 * axes.get_ylim()[1])  # room for the legend
    axes.legend(loc="upper left")


def _grow_widths(axes: Axes, found: Mapping[str, Any]) -> None:
    for index, who in enumerate(("plain loop", "fast")):
        rows = {
            row["parameters"]: row[who]["steps_per_second"]
            for row in found.values()
            if "steps_per_second" in row[who]
        }
        _line(axes, index, who, rows)
    axes.set(xscale="log", yscale="log", title="Model size (MLP)")
    axes.set(xlabel="parameters", ylabel="client steps per second")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend()


def _line(axes: Axes, index: int, label: str, rows: Mapping[int, Mapping[str, float]]) -> None:
    look = line_style(index)
    middle = [row["median"] for row in rows.values()]
    below = [row["median"] - row["low"] for row in rows.values()]
    above = [row["high"] - row["median"] for row in rows.values()]
    axes.errorbar(
        list(rows), middle, [below, above], label=label, color=look.colour, marker=look.marker,
        linestyle=look.dashes, capsize=2,
    )  # fmt: skip
