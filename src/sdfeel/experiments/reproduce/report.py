"""Figures, tables and verdicts of the runs that are done, and a page that holds them all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sdfeel.experiments.reproduce.clusters import bias_rows, cluster_losses
from sdfeel.experiments.reproduce.document import (
    asked,
    command,
    measured,
    notes,
    results_document,
)
from sdfeel.experiments.reproduce.plan import Reproduction
from sdfeel.experiments.reproduce.runner import run_folder
from sdfeel.experiments.reproduce.spec import Drawing, Target
from sdfeel.experiments.reproduce.verdicts import Verdict, judge
from sdfeel.files import write_report
from sdfeel.records.reading import RunRecord, read_run
from sdfeel.reports.figures import Panel, figure_panels, save_figure
from sdfeel.reports.page import write_page
from sdfeel.reports.rendering import markdown_table
from sdfeel.reports.tables import Row, compare_table

__all__ = ["verdict_rows", "write_reports"]

Records = Mapping[str, Sequence[RunRecord]]


def write_reports(plan: Reproduction, out: Path) -> list[Verdict]:
    """Write what the runs that are finished show; gives the verdicts.

    A figure has the seeds of which all its curves are there; one that has none is left out.

    <figure>/*.png, *.svg     the figure as the paper lays it out
    <figure>/table.csv, .md   how every curve ended
    <figure>/curves.csv       every evaluation of every run
    <figure>/clusters.csv     where asked for: the loss of every final model by cluster
    <figure>/verdicts.json, .md
    verdicts.json, .md, results.md and index.html: all of it
    """
    verdicts: list[Verdict] = []
    figures: dict[str, Figure] = {}
    tables: dict[str, list[Row]] = {}
    biases: dict[str, list[list[Row]]] = {}
    for target in plan.targets:
        records = _records(plan, out, target)
        if not records:
            continue
        folder = out / target.name
        found = [
            judge(target.name, claim, {k: [r.metrics for r in of] for k, of in records.items()})
            for claim in target.claim
        ]
        for drawing in target.drawing:
            figures[drawing.title] = _draw(drawing, records, folder)
        tables[target.name] = _write_tables(folder, records)
        if target.bias:
            biases[target.name] = _write_clusters(folder, plan, target, records)
        _write_verdicts(folder, found)
        verdicts += found
    _write_verdicts(out, verdicts)
    about = _about(plan, out)
    text = results_document(plan, verdicts, tables, biases, about=about)
    write_report(out / "results.md", text.encode())
    shown = [target for target in plan.targets if target.name in tables]
    write_page(
        out / "index.html",
        f"Semi-decentralized federated edge learning, reproduced on {plan.dataset}",
        figures,
        {"Verdicts": verdict_rows(verdicts)}
        | {t.title: tables[t.name] for t in shown}
        | {
            f"Losses by cluster, {own.against}": rows
            for t in shown
            for own, rows in zip(t.bias, biases.get(t.name, ()), strict=True)
        },
        {"command": command(plan)},
        list(dict.fromkeys(note for target in shown for note in notes(target, plan))),
        environment=about,
    )
    return verdicts


def verdict_rows(verdicts: Sequence[Verdict]) -> list[Row]:
    """Verdicts as rows of a table for people."""
    return [
        {
            "figure": verdict.figure,
            "claim": verdict.claim,
            "reading": verdict.reading or None,
            "verdict": verdict.verdict,
            "measured": measured(verdict),
            "asked for": asked(verdict),
            "seeds": verdict.seeds,
            "note": verdict.note,
        }
        for verdict in verdicts
    ]


def _records(plan: Reproduction, out: Path, target: Target) -> Records:
    """The runs of a figure by label, for the seeds that are complete; empty if none is."""
    runs = {
        label: [_finished(run_folder(out, folder)) for folder in folders]
        for label, folders in plan.curves[target.name].items()
    }
    seeds = list(zip(*runs.values(), strict=True))
    complete = [list(row) for row in takewhile(all, seeds)]
    labelled = zip(runs, zip(*complete, strict=True), strict=False)
    return {label: [run for run in of if run is not None] for label, of in labelled}


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
    """The curve up to where the shortest one of its panel ends, so that no line stops before."""
    at = metrics[x].to_numpy(dtype=float)
    last = {name: float(np.interp(end, at, metrics[name])) for name in metrics.columns}
    kept = metrics[at < end].astype(float)
    return pd.concat([kept, pd.DataFrame([last])], ignore_index=True)


def _write_tables(folder: Path, records: Records) -> list[Row]:
    rows = compare_table(records)
    for row, of in zip(rows, records.values(), strict=True):
        ends = [run.metrics["idle_share"].iloc[-1] for run in of if "idle_share" in run.metrics]
        row["idle_share"] = float(np.median(ends)) if ends else None
    write_report(folder / "table.md", markdown_table(rows).encode())
    write_report(folder / "table.csv", pd.DataFrame(rows).to_csv(index=False).encode())
    points = [
        record.metrics.assign(curve=label, seed=record.config.get("seed"))
        for label, of in records.items()
        for record in of
    ]
    table = pd.concat(points, ignore_index=True)
    first = ["curve", "seed"]
    table = table[first + [name for name in table.columns if name not in first]]
    write_report(folder / "curves.csv", table.to_csv(index=False, float_format="%.6g").encode())
    return rows


def _write_clusters(
    folder: Path, plan: Reproduction, target: Target, records: Records
) -> list[list[Row]]:
    """The losses by cluster of the curves that are asked for, and a table of each comparison."""
    configs = {job.folder: job.config for job in plan.jobs}
    wanted = dict.fromkeys(label for own in target.bias for label in [own.against, *own.curves])
    losses = {
        label: [cluster_losses(configs[run.path.name], run.path) for run in records[label]]
        for label in wanted
    }
    every = [
        own.assign(curve=label, seed=run.config.get("seed"))
        for label, of in losses.items()
        for own, run in zip(of, records[label], strict=True)
    ]
    table = pd.concat(every, ignore_index=True)[["curve", "seed", *every[0].columns[:-2]]]
    write_report(folder / "clusters.csv", table.to_csv(index=False, float_format="%.6g").encode())
    return [bias_rows(own, losses) for own in target.bias]


def _write_verdicts(folder: Path, verdicts: Sequence[Verdict]) -> None:
    content = json.dumps([verdict.as_dict() for verdict in verdicts], indent=2) + "\n"
    write_report(folder / "verdicts.json", content.encode())
    write_report(folder / "verdicts.md", markdown_table(verdict_rows(verdicts)).encode())


def _about(plan: Reproduction, out: Path) -> dict[str, Any]:
    """Versions, machine, and the real time of all runs together."""
    found = [_finished(run_folder(out, job.folder)) for job in plan.jobs]
    records = [record for record in found if record is not None]
    environment = records[0].environment if records else {}
    packages = ", ".join(f"{name} {v}" for name, v in environment.get("packages", {}).items())
    spent = sum(sum((record.summary or {}).get("phases", {}).values()) for record in records)
    return {
        "versions": f"{packages}, Python {environment.get('python')}",
        "revision": environment.get("git_revision"),
        "machine": f"{environment.get('processor')}, {environment.get('platform')}",
        "runs": f"{len(records)} of {len(plan.jobs)}, {spent / 60:.0f} minutes in all",
    }
