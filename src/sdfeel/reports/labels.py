"""Labels at the ends of curves, in place of a legend: the eye need not go there and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

# So many labels, of so many characters; points between two, and from a label to its curve's end.
MOST, LONGEST, LINE, FARTHEST = 6, 26, 8.0, 16.0
CONTRAST = 4.5  # of text with white, by WCAG


def label_ends(figure: Figure, axes: Axes, labels: Sequence[str]) -> bool:
    """Write each label beside the end of its curve in the last panel, if there is room for all."""
    lines = {str(line.get_label()): line for line in axes.lines}
    if len(labels) > MOST or set(lines) != set(labels):
        return False
    if max(map(len, labels)) > LONGEST:
        return False
    figure.draw_without_rendering()  # places follow from the layout
    ends: dict[str, tuple[float, float]] = {
        label: tuple(np.asarray(line.get_xydata(), float)[-1].tolist())
        for label, line in lines.items()
    }
    left, right = axes.get_xlim()
    if min(x for x, _ in ends.values()) < right - 0.15 * (right - left):
        return False  # a curve that ends early would be far from its label
    points = 72 / figure.dpi
    heights = {n: axes.transData.transform(end)[1] * points for n, end in ends.items()}
    order = sorted(heights, key=lambda label: heights[label])
    places = _apart([heights[label] for label in order], LINE)
    moved = [place - heights[label] for label, place in zip(order, places, strict=True)]
    if not np.isfinite(places).all() or max(map(abs, moved)) > FARTHEST:
        return False
    for label, up in zip(order, moved, strict=True):
        axes.annotate(
            label, (right, ends[label][1]), xytext=(5, up), textcoords="offset points",
            xycoords="data", va="center", color=ink(lines[label].get_color()), fontsize="small",
            annotation_clip=False, gid="label",
        )  # fmt: skip
    axes.set_xlim(left, right)
    return True


def ink(colour: Any) -> tuple[float, float, float]:
    """Return the colour of a curve, darker as far as small text on white needs it."""
    red, green, blue = to_rgb(colour)
    while True:
        light = 0.2126 * _linear(red) + 0.7152 * _linear(green) + 0.0722 * _linear(blue)
        if 1.05 / (light + 0.05) >= CONTRAST:
            return red, green, blue
        red, green, blue = 0.95 * red, 0.95 * green, 0.95 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def _apart(heights: Sequence[float], least: float) -> list[float]:
    """Move sorted heights apart until neighbours differ by `least`, each group around its mean."""
    groups: list[list[float]] = []  # sum of heights, number
    for height in heights:
        groups.append([height, 1])
        while len(groups) > 1 and _middle(groups[-1]) - _middle(groups[-2]) < least / 2 * (
            groups[-1][1] + groups[-2][1]
        ):
            total, number = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + number]
    return [
        _middle(group) + least * (n - (group[1] - 1) / 2)
        for group in groups
        for n in range(int(group[1]))
    ]


def _middle(group: Sequence[float]) -> float:
    return group[0] / group[1]
