"""Figures, tables and verdicts of the runs that are done, and a page that holds them all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sdfeel.experiments.reproduce.clusters import bias_rows, cluster_losses
from sdfeel.experiments.reproduce.document import (
    FigureResult,
    command,
    notes,
    results_document,
    title,
    verdict_rows,
)
from sdfeel.experiments.reproduce.plan import RUNS, Reproduction
from sdfeel.experiments.reproduce.spec import Drawing, Target
from sdfeel.experiments.reproduce.verdicts import Verdict, judge
from sdfeel.files import write_json, write_report
from sdfeel.records.reading import RunRecord, read_run
from sdfeel.reports.figures import Panel, figure_panels, save_figure
from sdfeel.reports.page import write_page
from sdfeel.reports.rendering import markdown_table
from sdfeel.reports.tables import Row, all_evaluations, compare_table

Records = Mapping[str, Sequence[RunRecord]]


def write_reports(plan: Reproduction, out: Path) -> list[Verdict]:
    """Write what the runs that are finished show; return the verdicts.

    A figure has the seeds of which all its curves are there; one that has none is left out.

    <figure>/*.png, *.svg     the figure as the paper lays it out
    <figure>/table.csv, .md   how every curve ended
    <figure>/curves.csv       every evaluation of every run
    <figure>/clusters.csv     where asked for: the loss of every final model by cluster
    <figure>/verdicts.json, .md
    verdicts.json, .md, results.md and index.html: all of it
    """
    results: dict[str, FigureResult] = {}
    figures: dict[str, Figure] = {}
    for target in plan.targets:
        records = _records(plan, out, target)
        if records or not target.curve:
            folder = out / target.name
            results[target.name] = _write_figure(plan, target, records, folder)
            figures |= {d.title: _draw(d, records, folder) for d in target.drawing}
    verdicts = [verdict for result in results.values() for verdict in result.verdicts]
    _write_verdicts(out, verdicts)
    about = _about(plan, out)
    write_report(out / "results.md", results_document(plan, results, about).encode())
    tables: dict[str, Sequence[Row]] = {"Verdicts": verdict_rows(verdicts)}
    for result in results.values():
        tables |= {result.target.title: result.rows} if result.rows else {}
        tables |= {f"Losses by cluster, {label}": rows for label, rows in result.biases.items()}
    paragraphs = [note for result in results.values() for note in notes(result.target, plan)]
    write_page(
        out / "index.html",
        title(plan),
        figures,
        tables,
        {"command": command(plan)},
        list(dict.fromkeys(paragraphs)),
        environment=about,
    )
    return verdicts


def _write_figure(
    plan: Reproduction, target: Target, records: Records, folder: Path
) -> FigureResult:
    """Write the tables of a figure and its verdicts."""
    metrics = {label: [run.metrics for run in of] for label, of in records.items()}
    lasted = {
        label: [float((run.summary or {}).get("elapsed", math.nan)) for run in of]
        for label, of in records.items()
    }
    verdicts = [judge(target.name, claim, metrics, lasted) for claim in target.claim]
    _write_verdicts(folder, verdicts)
    if not records:
        return FigureResult(target, verdicts, [])
    rows = compare_table(records)
    for row, tables in zip(rows, metrics.values(), strict=True):
        ends = [table["idle_share"].iloc[-1] for table in tables if "idle_share" in table]
        row["idle_share"] = float(np.median(ends)) if ends else None
    write_report(folder / "table.md", markdown_table(rows).encode())
    write_report(folder / "table.csv", pd.DataFrame(rows).to_csv(index=False).encode())
    _write_rounded(folder / "curves.csv", all_evaluations(records, "curve"))
    biases = {}
    if target.bias:
        losses = _cluster_losses(plan, target, records)
        seeds = {label: [run.config.get("seed") for run in records[label]] for label in losses}
        parts = [
            pd.DataFrame({"curve": label, "seed": seed, **table})
            for label, tables in losses.items()
            for seed, table in zip(seeds[label], tables, strict=True)
        ]
        _write_rounded(folder / "clusters.csv", pd.concat(parts, ignore_index=True))
        biases = {bias.against: bias_rows(bias, losses) for bias in target.bias}
    return FigureResult(target, verdicts, rows, biases)


def _cluster_losses(
    plan: Reproduction, target: Target, records: Records
) -> dict[str, list[pd.DataFrame]]:
    """Return the losses by cluster of the curves that are asked for, one table a seed."""
    configs = {job.folder: job.config for job in plan.jobs}
    labels = dict.fromkeys(label for bias in target.bias for label in bias.labels)
    return {
        label: [cluster_losses(configs[run.path.name], run.path) for run in records[label]]
        for label in labels
    }


def _records(plan: Reproduction, out: Path, target: Target) -> Records:
    """Read the runs of a figure by label, for the seeds that are complete; empty if none is."""
    runs = {
        label: [_finished(out / RUNS / folder) for folder in folders]
        for label, folders in plan.curves[target.name].items()
    }
    complete = list(takewhile(all, zip(*runs.values(), strict=True)))
    by_label = zip(runs, zip(*complete, strict=True), strict=False)
    return {label: [run for run in of if run is not None] for label, of in by_label}


def _finished(folder: Path) -> RunRecord | None:
    if not (folder / "summary.json").is_file():
        return None
    record = read_run(folder)
    return None if record.summary is None or record.summary.get("interrupted") else record


def _draw(drawing: Drawing, records: Records, folder: Path) -> Figure:
    panels = []
    for panel in drawing.panel:
        curves = {label: [r.metrics for r in records[label]] for label in panel.curves or records}
        end = min(float(run[panel.x].iloc[-1]) for runs in curves.values() for run in runs)
        cut = {label: [_until(run, panel.x, end) for run in of] for label, of in curves.items()}
        panels.append(Panel(cut, panel.x, panel.y, panel.title))
    figure = figure_panels(panels, title=drawing.title)
    save_figure(figure, folder / drawing.name)
    return figure


def _until(metrics: pd.DataFrame, x: str, end: float) -> pd.DataFrame:
    """Cut a curve where the shortest one of its panel ends, so that no line stops before."""
    at = metrics[x].to_numpy(dtype=float)
    last = {name: float(np.interp(end, at, metrics[name])) for name in metrics.columns}
    return pd.concat([metrics[at < end].astype(float), pd.DataFrame([last])], ignore_index=True)


def _write_rounded(path: Path, table: pd.DataFrame) -> None:
    write_report(path, table.to_csv(index=False, float_format="%.6g").encode())


def _write_verdicts(folder: Path, verdicts: Sequence[Verdict]) -> None:
    content = [verdict.as_dict() for verdict in verdicts]
    write_json(folder / "verdicts.json", content, write_report)
    write_report(folder / "verdicts.md", markdown_table(verdict_rows(verdicts)).encode())


def _about(plan: Reproduction, out: Path) -> dict[str, Any]:
    """Say versions, machine, and the real time of all runs together."""
    runs = [_finished(out / RUNS / job.folder) for job in plan.jobs]
    records = [run for run in runs if run is not None]
    environment = records[0].environment if records else {}
    packages = ", ".join(f"{name} {v}" for name, v in environment.get("packages", {}).items())
    spent = sum(sum((record.summary or {}).get("phases", {}).values()) for record in records)
    return {
        "versions": f"{packages}, Python {environment.get('python')}",
        "revision": environment.get("git_revision"),
        "machine": f"{environment.get('processor')}, {environment.get('platform')}",
        "runs": f"{len(records)} of {len(plan.jobs)}, {spent / 60:.0f} minutes in all",
    }
