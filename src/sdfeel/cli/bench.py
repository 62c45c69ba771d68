"""`sdfeel bench`: how fast the engines are here, beside a plain PyTorch loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sdfeel.cli.output import JsonFlag, console, print_json, say

__all__ = ["app"]

app = typer.Typer(help="Measure speed and memory on this machine.")
QuickFlag = Annotated[bool, typer.Option("--quick", help="Less, in about a minute.")]


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    quick: QuickFlag = False,
    as_json: JsonFlag = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for performance.md and performance.png.")
    ] = None,
) -> None:
    """Measure every engine beside a plain PyTorch loop and the machine's matrix product.

    All in one run and in turn: client steps per second, ratio to the loop, share of the matrix
    product, memory, growth with clients, servers and model size. On a machine that is busy with
    other things the ratios still hold, roughly; the rates do not.
    """
    if context.invoked_subcommand is not None:
        return
    from sdfeel.bench.report import bench_tables, write_bench
    from sdfeel.bench.suite import FULL, QUICK, run_bench
    from sdfeel.files import check_writable

    if out is not None:
        check_writable(out)
    results = run_bench(QUICK if quick else FULL, say)
    if as_json:
        print_json(results)
    else:
        for title, rows in bench_tables(results):
            _show(title, rows)
    if out is not None:
        for path in write_bench(results, out):
            say(f"written: {path}")


@app.command()
def deploy(quick: QuickFlag = False, as_json: JsonFlag = False) -> None:
    """Measure what a deployment costs beyond computing: time, bytes and memory."""
    from sdfeel.bench.deployment.costs import run

    results = run(quick)
    if as_json:
        print_json(results)
    else:
        rows = [{"key": key, "value": f"{value:.3g}"} for key, value in results.items()]
        _show("Deployment", rows)


def _show(title: str, rows: list[dict[str, str]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(row.get(column, "")) for column in columns))
    console.print(table)
