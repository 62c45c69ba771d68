"""The reports room: figures, tables and pages from the records of runs. It never trains."""

from sdfeel.reports.comparison import write_comparison
from sdfeel.reports.figures import (
    Panel,
    figure_of_metrics,
    figure_panels,
    plot_curves,
    save_figure,
)
from sdfeel.reports.tables import compare_table, time_to
from sdfeel.reports.topology import draw_topology

__all__ = [
    "Panel",
    "compare_table",
    "draw_topology",
    "figure_of_metrics",
    "figure_panels",
    "plot_curves",
    "save_figure",
    "time_to",
    "write_comparison",
]
