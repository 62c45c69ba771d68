"""A whole comparison in one call: the figures, the table behind them, and the page with both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sdfeel.files import write_report
from sdfeel.records.comparison import note_runs
from sdfeel.records.reading import RunRecord
from sdfeel.reports.figures import figure_of_metrics, save_figure
from sdfeel.reports.page import write_page
from sdfeel.reports.rendering import markdown_table
from sdfeel.reports.settings import compare_settings, setting_text
from sdfeel.reports.tables import Row, compare_table


@dataclass(frozen=True)
class Written:
    """The files that were written, and the rows of the table."""

    rows: list[Row]
    page: Path
    png: Path
    svg: Path
    table: Path


def write_comparison(
    folder: str | Path,
    runs: Mapping[str, RunRecord | Sequence[RunRecord]],
    *,
    title: str,
    notes: Sequence[str] = (),
    links: Mapping[str, str] | None = None,
) -> Written:
    """Write over_time.png and .svg, table.md and index.html.

    Of runs that lie in the folder, comparison.json says which belong together.

    Args:
        folder: where to write.
        runs: by label as the legend shows it: one record, or one per seed.
        title: of the page.
        notes: paragraphs of the page.
        links: files beside it, with the words of each link.
    """
    target = Path(folder)
    seeds = {label: [of] if isinstance(of, RunRecord) else list(of) for label, of in runs.items()}
    rows = compare_table(seeds)
    curves = {label: [run.metrics for run in of] for label, of in seeds.items()}
    figure = figure_of_metrics(curves)
    png, svg = save_figure(figure, target / "over_time")
    table = target / "table.md"
    write_report(table, markdown_table(rows).encode())
    shared, differing = compare_settings({label: of[0].config for label, of in seeds.items()})
    if "seed" in shared:  # of the first run alone; all of them tell the whole story
        used = {str(run.config.get("seed")) for of in seeds.values() for run in of}
        shared["seed"] = ", ".join(sorted(used, key=lambda seed: (len(seed), seed)))
    tables = {"Results": rows}
    if differing:
        tables["Settings that differ"] = [
            {key: setting_text(value) for key, value in row.items()} for row in differing
        ]
    page = write_page(
        target / "index.html",
        title,
        {"Loss and metrics over simulated time.": figure},
        tables,
        shared,
        notes,
        environment=next(iter(seeds.values()))[0].environment,
        links=links,
    )
    note_runs(target, title, {label: [run.path for run in of] for label, of in seeds.items()})
    return Written(rows, page, png, svg, table)
