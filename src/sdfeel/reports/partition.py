"""A drawing of a partition: which client holds how many samples of which label."""

from __future__ import annotations

from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator
from numpy import int64
from numpy.typing import NDArray

from sdfeel.errors import InputError
from sdfeel.reports.style import COLOURS, COLUMN, PAGE, drawing, new_figure

MOST_CLIENTS = 100  # beyond them circles are dots
NARROW = 25  # clients that fit in a column of a paper
LARGEST = 0.48  # radius of the largest circle; neighbours are 1 apart
INCHES = 0.14  # for a label, and for a client of a wide figure


def draw_partition(counts: NDArray[int64], title: str | None = None) -> Figure:
    """Draw a circle for each client and label; its area is the number of samples.

    Args:
        counts: samples of each client (row) of each label (column).
        title: of the figure.

    Raises:
        InputError: there are more clients than can be told apart.
    """
    clients, labels = counts.shape
    if clients > MOST_CLIENTS:
        remedy = f"a figure shows {MOST_CLIENTS} clients at most; --json has the numbers of all"
        raise InputError("clients", clients, remedy)
    width = COLUMN if clients <= NARROW else min(PAGE, max(COLUMN, INCHES * clients))
    scale = LARGEST / max(1, counts.max()) ** 0.5
    with drawing():
        figure = new_figure(width, 0.9 + width * labels / (clients + 4))
        axes = figure.add_subplot()
        circles = [
            Circle((client, label), scale * float(counts[client, label]) ** 0.5)
            for client, label in zip(*counts.nonzero(), strict=True)
        ]
        axes.add_collection(PatchCollection(circles, facecolor=COLOURS[0], linewidth=0))
        axes.set(xlim=(-0.7, clients - 0.3), ylim=(-0.7, labels - 0.3), aspect="equal")
        axes.set(xlabel="client", ylabel="label", title=title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.grid(visible=False)
    return figure
