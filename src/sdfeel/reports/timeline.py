"""A timeline as a figure: a bar for each client and server, coloured by what it does."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sdfeel.reports.style import ACTIVITIES, PAGE, drawing, new_figure

BAR = 0.11  # inches


def figure_of_timeline(
    spans: Sequence[tuple[str, str, float, float]], seconds: float, title: str
) -> Figure:
    """Draw a row of bars for each name; `spans` are (name, key of ACTIVITIES, from, to)."""
    names = list(dict.fromkeys(who for who, *_ in spans))
    doing = [does for does in ACTIVITIES if any(does == other for _, other, *_ in spans)]
    with drawing():
        figure = new_figure(PAGE, 1.2 + BAR * len(names))
        axes = figure.add_subplot()
        for row, name in enumerate(names):
            bars = [span for span in spans if span[0] == name]
            axes.broken_barh(
                [(begin, min(end, seconds) - begin) for _, _, begin, end in bars],
                (row - 0.42, 0.84),
                facecolors=[ACTIVITIES[does] for _, does, _, _ in bars],
            )
        axes.set_yticks(range(len(names)), names, fontsize=5)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, seconds)
        axes.set_xlabel("simulated time (s)")
        axes.set_title(title)
        axes.grid(visible=False, axis="y")
        handles = [Patch(color=ACTIVITIES[does], label=does) for does in doing]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(doing))
    return figure
