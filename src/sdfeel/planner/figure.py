"""A plan as a figure: what an iteration costs against how many are needed, and loss over time."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from sdfeel.planner.candidates import Candidate
from sdfeel.planner.planner import Recommendation
from sdfeel.planner.report import level
from sdfeel.reports.legends import legend_below, legend_height
from sdfeel.reports.style import COLOURS, PAGE, drawing, line_style, new_figure

__all__ = ["frontier_figure"]

GREY = "0.65"
HEIGHT = 3.2


def frontier_figure(plan: Recommendation) -> Figure:
    """Two panels: price against pace of every candidate, and loss over time of the best."""
    with drawing():
        figure = new_figure(PAGE, HEIGHT)
        panels = figure.subplots(1, 2)
        _draw_price(panels[0], plan)
        _draw_time(panels[1], plan)
        legends = [
            legend_below(figure, axes, axes.get_legend_handles_labels()[0], PAGE / 2, "")
            for axes in panels
        ]
        # The legends have a place of their own below the panels, which keep their height.
        figure.set_figheight(HEIGHT + max(legend_height(legend) for legend in legends))
    return figure


def _draw_price(axes: Axes, plan: Recommendation) -> None:
    target = level(plan)
    every = list(plan.ranking)
    price = np.array([one.cost.per_iteration for one in every])
    pace = plan.predictor.iterations(every, target)
    price, pace = price[np.isfinite(pace)], pace[np.isfinite(pace)]
    axes.loglog(price, pace, ".", color=GREY, label="candidates (predicted)")
    best = _frontier(price, pace)
    axes.loglog(price[best], pace[best], "-", color=COLOURS[0], label="frontier")
    chosen = plan.predictor.iterations([plan.choice], target)
    planned = [plan.choice.cost.per_iteration]
    axes.loglog(planned, chosen, "*", color=COLOURS[1], ms=11, label="planned")
    axes.set(xlabel="simulated seconds per iteration")
    axes.set(ylabel=f"iterations to {plan.objective.shown(target)}")
    for axis in (axes.xaxis, axes.yaxis):
        _plain_ticks(axis)


def _plain_ticks(axis: Axis) -> None:
    """1, 2, 5, 10, ... in plain numbers: a range of less than a decade gets labels too."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_time(axes: Axes, plan: Recommendation) -> None:
    budget = plan.objective.budget if plan.objective.target is None else None
    raced = [one.run.curve for one in plan.raced]
    for number, curve in enumerate(raced):
        label = "raced" if number == 0 else None
        axes.plot(curve.seconds, curve.losses, ".", color=GREY, ms=2.5, zorder=1, label=label)
    for number, one in enumerate(_shown(plan)):
        losses, needed = plan.predictor.needed([one], beyond=budget is not None)
        seconds = needed[0] * one.cost.per_iteration
        kept = np.isfinite(seconds) if budget is None else seconds <= budget
        look = line_style(number)
        style = {"color": look.colour, "linestyle": look.dashes}
        axes.plot(seconds[kept], losses[kept], label=f"{one} (predicted)", **style)
    if budget is None:
        axes.axhline(level(plan), color="0.4", lw=0.8, ls=":")
    axes.set(xlabel="simulated seconds")
    axes.set(ylabel="1 - accuracy" if plan.objective.accuracy else "training loss")


def _shown(plan: Recommendation) -> list[Candidate]:
    best = [one for one in plan.ranking if one.key != plan.choice.key]
    return [plan.choice, *best[:3]]


def _frontier(price: NDArray[np.float64], pace: NDArray[np.float64]) -> list[int]:
    """Who is cheapest for its pace, from the cheapest on."""
    kept: list[int] = []
    for row in np.lexsort((pace, price)):
        if not kept or pace[row] < pace[kept[-1]]:
            kept.append(int(row))
    return kept
