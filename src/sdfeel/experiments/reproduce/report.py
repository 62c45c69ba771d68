"""Figures, tables and verdicts of the runs that are done, and a page that holds them all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from sdfeel.experiments.reproduce.plan import Plan
from sdfeel.experiments.reproduce.runner import run_folder
from sdfeel.experiments.reproduce.spec import Drawing, Target
from sdfeel.experiments.reproduce.verdicts import Verdict, judge
from sdfeel.reports.figures import Panel, figure_panels, save_figure
from sdfeel.files import write_report
from sdfeel.reports.page import write_page
from sdfeel.reports.rendering import markdown_table
from sdfeel.reports.runs import RunRecord, read_run
from sdfeel.reports.tables import Row, compare_table

__all__ = ["verdict_rows", "write_reports"]

Records = Mapping[str, Sequence[RunRecord]]


def write_reports(plan: Plan, out: Path, seeds: int | None = None) -> list[Verdict]:
    """Write what the runs of the first `seeds` seeds show; gives the verdicts.

    <figure>/*.png, *.svg     the figure as the paper lays it out
    <figure>/table.csv, .md   how every curve ended
    <figure>/curves.csv       every evaluation of every run
    <figure>/verdicts.json, .md
    verdicts.json, .md and index.html: all of it
    """
    verdicts: list[Verdict] = []
    figures: dict[str, Figure] = {}
    tables: dict[str, list[Row]] = {}
    for target in plan.targets:
        records = _records(plan, out, target, seeds)
        folder = out / target.name
        found = [
            judge(target.name, claim, {k: [r.metrics for r in of] for k, of in records.items()})
            for claim in target.claim
        ]
        for drawing in target.drawing:
            figures[drawing.title] = _draw(drawing, records, folder)
        tables[target.title] = _write_tables(folder, records)
        _write_verdicts(folder, found)
        verdicts += found
    _write_verdicts(out, verdicts)
    environment = _environment(plan, out)
    write_page(
        out / "index.html",
        f"Semi-decentralized federated edge learning, reproduced on {plan.dataset}",
        figures,
        {"Verdicts": verdict_rows(verdicts), **tables},
        {"profile": plan.profile, "dataset": plan.dataset, "seeds": seeds or plan.seeds}
        | {"set": list(plan.settings)},
        [note for target in plan.targets for note in target.notes],
        environment=environment,
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
            "measured": _measured(verdict),
            "asked for": _asked(verdict),
            "seeds": verdict.seeds,
            "note": verdict.note,
        }
        for verdict in verdicts
    ]


def _measured(verdict: Verdict) -> str:
    if verdict.value is None:
        return "–"
    text = f"{verdict.value:.3g}"
    if verdict.spread is not None:
        text += f" ({verdict.spread[0]:.3g} to {verdict.spread[1]:.3g})"
    return f"{text} {verdict.unit}"


def _asked(verdict: Verdict) -> str:
    return f"{'≤' if verdict.kind == 'within' else '>'} {verdict.threshold:g}"


def _records(plan: Plan, out: Path, target: Target, seeds: int | None) -> Records:
    return {
        label: [read_run(run_folder(out, folder)) for folder in folders[:seeds]]
        for label, folders in plan.curves[target.name].items()
    }


def _draw(drawing: Drawing, records: Records, folder: Path) -> Figure:
    panels = [
        Panel(
            {label: [r.metrics for r in records[label]] for label in panel.curves or records},
            panel.x,
            panel.y,
            log=panel.log,
        )
        for panel in drawing.panel
    ]
    figure = figure_panels(panels, title=drawing.title, until=_end(drawing, records))
    save_figure(figure, folder / drawing.name)
    return figure


def _end(drawing: Drawing, records: Records) -> float | None:
    """Where the shortest curve ends, if all panels have the same axis: no line stops in between."""
    axes = {panel.x for panel in drawing.panel}
    if len(axes) > 1:
        return None
    labels = [label for panel in drawing.panel for label in panel.curves or records]
    axis = axes.pop()
    return min(float(run.metrics[axis].iloc[-1]) for label in labels for run in records[label])


def _write_tables(folder: Path, records: Records) -> list[Row]:
    rows = compare_table(records)
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


def _write_verdicts(folder: Path, verdicts: Sequence[Verdict]) -> None:
    content = json.dumps([verdict.as_dict() for verdict in verdicts], indent=2) + "\n"
    write_report(folder / "verdicts.json", content.encode())
    write_report(folder / "verdicts.md", markdown_table(verdict_rows(verdicts)).encode())


def _environment(plan: Plan, out: Path) -> Mapping[str, Any]:
    first = next(iter(plan.curves[plan.targets[0].name].values()))[0]
    return read_run(run_folder(out, first)).environment
