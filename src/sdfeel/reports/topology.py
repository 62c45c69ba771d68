"""A drawing of the network: edge servers on a circle, their clients behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sdfeel.errors import InputError
from sdfeel.reports.style import COLOURS, COLUMN, drawing, legend_below, new_figure

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

SERVER, CLIENT, EDGE = COLOURS[0], COLOURS[1], "#555555"
# Beyond these a dot per client, or a number per server, is a smear; the count is written instead.
MOST_CLIENTS = 24
MOST_SERVERS = 40
NUMBERED = 24
INNER = 1.0
BESIDE, ROWS = 0.085, 0.13  # between clients of a row, and between rows


def draw_topology(
    edges: Iterable[tuple[int, int]],
    sizes: Sequence[int],
    *,
    zeta: float | None = None,
    title: str | None = None,
) -> Figure:
    """Draw servers 0..D-1 with their links, and `sizes[d]` clients at server d.

    zeta   second largest eigenvalue of the mixing matrix in absolute value, shown in the title
    title  what stands before it, such as "ring"; the number of servers if not given
    """
    counts = _counts(sizes)
    links = _links(edges, len(counts))
    with drawing():
        figure = new_figure(COLUMN, COLUMN + 0.15)
        axes = figure.add_subplot()
        angle = np.pi / 2 - 2 * np.pi * np.arange(len(counts)) / len(counts)
        at = _around(angle, INNER if len(counts) > 1 else 0.0)
        axes.add_collection(
            LineCollection([at[list(link)] for link in links], colors=EDGE, linewidths=1.0)
        )
        every_client = len(counts) <= MOST_SERVERS and counts.max() <= MOST_CLIENTS
        behind = (_clients if every_client else _counted)(axes, at, angle, counts)
        _servers(axes, at, len(counts))
        low, high = (f(np.concatenate([at, behind]), axis=0) for f in (np.min, np.max))
        axes.set(
            xlim=(low[0] - 0.15, high[0] + 0.15),
            ylim=(low[1] - 0.15, high[1] + 0.15),
            aspect="equal",
        )
        axes.set_axis_off()
        name = title or _plural(len(counts), "edge server")
        axes.set_title(name if zeta is None else f"{name}, ζ = {zeta:.4g}", loc="center")
        legend_below(figure, _legend(counts, every_client), handle=1.0)
    return figure


def _around(angles: Floats, radius: float) -> Floats:
    """Return points on a circle."""
    return radius * np.column_stack([np.cos(angles), np.sin(angles)])


def _counts(sizes: Sequence[int]) -> Counts:
    counts = np.asarray(list(sizes), dtype=np.int64)
    if len(counts) == 0 or counts.min() < 0:
        raise InputError("sizes", list(sizes), "the number of clients at each of the servers")
    return counts


def _links(edges: Iterable[tuple[int, int]], servers: int) -> list[tuple[int, int]]:
    links = {(min(a, b), max(a, b)) for a, b in edges if a != b}
    for link in links:
        if link[0] < 0 or link[1] >= servers:
            raise InputError("edges", link, f"both ends must be servers from 0 to {servers - 1}")
    return sorted(links)


def _clients(axes: Axes, at: Floats, angle: Floats, counts: Counts) -> Floats:
    """Draw every client behind its server; return where they are."""
    places = [np.empty((0, 2))]
    for place, outwards, count in zip(at, angle, counts, strict=True):
        spots = place + _fan(int(count), float(outwards), len(counts))
        lines = [(place, spot) for spot in spots]
        axes.add_collection(LineCollection(lines, colors=CLIENT, linewidths=0.5, alpha=0.6))
        axes.plot(spots[:, 0], spots[:, 1], "o", color=CLIENT, markersize=3.2, zorder=2)
        places.append(spots)
    return np.concatenate(places)


def _counted(axes: Axes, at: Floats, angle: Floats, counts: Counts) -> Floats:
    """Write the number of clients behind each server; return where it stands."""
    places = at + _around(angle, 0.27)
    if len(counts) <= MOST_SERVERS:
        for (x, y), count in zip(places, counts, strict=True):
            axes.text(x, y, f"×{count}", ha="center", va="center", color=CLIENT, size=7)
    return places


def _fan(count: int, outwards: float, servers: int) -> Floats:
    """Place clients around their server: in even rows, no wider than the server's sector."""
    if servers == 1:
        return _around(outwards + 2 * np.pi * np.arange(count) / max(count, 1), 0.6)
    sector = np.sin(np.pi / servers)
    nearest = 0.3 if sector > 0.25 else 0.24

    def half(radius: float) -> float:
        widest = np.arcsin(min(0.72 * sector * (INNER + radius) / radius, 1.0))
        return float(min(widest, 0.4 * np.pi))

    room = int(2 * half(nearest) * nearest / BESIDE) + 1
    spots = [np.empty((0, 2))]
    for row, clients in enumerate(np.array_split(np.arange(count), max(-(-count // room), 1))):
        radius, many = nearest + ROWS * row, len(clients)
        turns = outwards + half(radius) * (np.linspace(-1, 1, many) if many > 1 else np.zeros(many))
        spots.append(_around(turns, radius))
    return np.concatenate(spots)


def _servers(axes: Axes, at: Floats, servers: int) -> None:
    is_numbered = servers <= NUMBERED
    size = 11.0 if is_numbered else max(240.0 / servers, 1.5)
    axes.plot(at[:, 0], at[:, 1], "s", color=SERVER, markersize=size, zorder=3)
    look: dict[str, Any] = {"color": "white", "size": 7, "ha": "center", "va": "center_baseline"}
    for server, (x, y) in enumerate(at if is_numbered else []):
        axes.text(x, y, str(server), zorder=4, **look)


def _legend(counts: Counts, every_client: bool) -> list[Line2D]:
    total = _plural(int(counts.sum()), "client")
    if not every_client and len(counts) > MOST_SERVERS:
        total += " (not drawn)"
    look: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    return [
        Line2D([], [], marker="s", color=SERVER, label=_plural(len(counts), "edge server"), **look),
        Line2D([], [], marker="o", color=CLIENT, label=total, **look),
    ]


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
