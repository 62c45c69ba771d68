"""The page of the run folder names what a run writes: no file and no column more or less."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from sdfeel.cli import app

NAME = re.compile(r"`([^`]+)`")


def names_of(table: str) -> set[str]:
    """Return the names in the first column of a table in Markdown."""
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in NAME.findall(row)}


def test_the_page_names_every_file_and_column(docs: Path, tmp_path: Path) -> None:
    files, columns = (docs / "run_folder.md").read_text().split("## Columns of metrics.csv")
    words = ["until=1", "network.clients_per_server=2", "network.servers=3", "evaluation.every=2"]
    settings = [word for setting in words for word in ("--set", setting)]
    done = CliRunner().invoke(app, ["run", "demo", "--out", str(tmp_path / "run"), *settings])
    assert done.exit_code == 0, done.output
    assert names_of(files) == {path.name for path in (tmp_path / "run").iterdir()}
    assert names_of(columns) == set(pd.read_csv(tmp_path / "run" / "metrics.csv").columns)
    trace = list(pd.read_csv(tmp_path / "run" / "trace.csv").columns)
    assert trace[:2] == ["iteration", "elapsed"]
    assert all(re.fullmatch(r"\d+-\d+|(loss|accuracy) \d+", name) for name in trace[2:])
