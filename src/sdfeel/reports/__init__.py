"""The reports room: figures, tables and pages from the records of runs. It never trains."""

from sdfeel.records.reading import RunRecord, read_run
from sdfeel.reports.comparison import Written, write_comparison
from sdfeel.reports.figures import (
    Panel,
    figure_of_metrics,
    figure_over_time,
    figure_panels,
    plot_curves,
    save_figure,
)
from sdfeel.reports.page import write_page
from sdfeel.reports.rendering import html_table, markdown_table, rich_table
from sdfeel.reports.settings import compare_settings, group_runs
from sdfeel.reports.tables import compare_table, time_to
from sdfeel.reports.topology import draw_topology

__all__ = [
    "Panel",
    "RunRecord",
    "Written",
    "compare_settings",
    "compare_table",
    "draw_topology",
    "figure_of_metrics",
    "figure_over_time",
    "figure_panels",
    "group_runs",
    "html_table",
    "markdown_table",
    "plot_curves",
    "read_run",
    "rich_table",
    "save_figure",
    "time_to",
    "write_comparison",
    "write_page",
]
