"""A plan as a figure: what an iteration costs against how many are needed, and loss over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from sdfeel.planner.price import Array
from sdfeel.reports.style import COLOURS, PAGE, drawing, legend_below, line_style, new_figure

if TYPE_CHECKING:
    from sdfeel.planner.plan import Plan

__all__ = ["frontier_figure"]

GREY = "0.65"
HEIGHT = 3.2


def frontier_figure(plan: Plan) -> Figure:
    """Draw two panels: price against pace of every candidate, and loss over time of the best."""
    with drawing():
        figure = new_figure(PAGE, HEIGHT)
        panels = figure.subplots(1, 2)
        _draw_price(panels[0], plan)
        _draw_time(panels[1], plan)
        handles = [handle for axes in panels for handle in axes.get_legend_handles_labels()[0]]
        legend_below(figure, handles)
    return figure


def _draw_price(axes: Axes, plan: Plan) -> None:
    level = plan.level
    price = np.array([row.price.per_iteration for row in plan.ranking])
    needed = np.array([row.predicted.iterations_to(level) for row in plan.ranking])
    is_there = np.isfinite(needed)
    price, needed = price[is_there], needed[is_there]
    axes.loglog(price, needed, ".", color=GREY, label="candidates (predicted)")
    best = _frontier(price, needed)
    axes.loglog(price[best], needed[best], "-", color=COLOURS[0], label="frontier")
    choice = [plan.choice.price.per_iteration], [plan.choice.predicted.iterations_to(level)]
    axes.loglog(*choice, "*", color=COLOURS[1], ms=11, label="planned")
    axes.set(xlabel="simulated seconds per iteration")
    axes.set(ylabel=f"iterations to {plan.objective.shown(level)}")
    for axis in (axes.xaxis, axes.yaxis):  # plain numbers, also in a range of less than a decade
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _draw_time(axes: Axes, plan: Plan) -> None:
    for number, row in enumerate(plan.raced):
        label = "raced" if number == 0 else None
        curve = row.curve
        axes.plot(curve.seconds, curve.losses, ".", color=GREY, ms=2.5, zorder=1, label=label)
    others = [row for row in plan.ranking if row is not plan.choice]
    for number, row in enumerate([plan.choice, *others[:3]]):
        curve, look = plan.expected(row), line_style(number)
        there = curve.seconds <= plan.objective.limit
        style = {"color": look.colour, "linestyle": look.dashes}
        axes.plot(curve.seconds[there], curve.losses[there], label=f"{row} (predicted)", **style)
    if plan.objective.target is not None:
        axes.axhline(plan.level, color="0.4", lw=0.8, ls=":")
    axes.set(xlabel="simulated seconds")
    axes.set(ylabel="1 - accuracy" if plan.objective.accuracy else "training loss")


def _frontier(price: Array, needed: Array) -> list[int]:
    """Places of candidates that need fewer iterations than any that is cheaper."""
    places: list[int] = []
    for place in np.lexsort((needed, price)):
        if not places or needed[place] < needed[places[-1]]:
            places.append(int(place))
    return places
