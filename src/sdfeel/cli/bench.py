"""`sdfeel bench`: carry out the benchmarks of the repository, which are not in the wheel."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sdfeel.cli.output import JsonFlag, console, print_json, say
from sdfeel.errors import InputError

__all__ = ["app"]

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"  # of a checkout; installed, nothing is there

app = typer.Typer(help="Measure speed and memory on this machine.")
QuickFlag = Annotated[bool, typer.Option("--quick", help="Measure less, in about two minutes.")]


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    quick: QuickFlag = False,
    million: Annotated[
        bool, typer.Option("--million", help="Only measure a run with a million clients.")
    ] = False,
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
    if million:
        own = _import_benchmark("speed.million").million()
        if as_json:
            print_json({"million": own})
            return
        phases = own.pop("phases")
        numbers = {**own, **{f"seconds of {name}": seconds for name, seconds in phases.items()}}
        _show("A million clients", [{"": k, "value": f"{v:,.6g}"} for k, v in numbers.items()])
        return
    suite, report = _import_benchmark("speed.suite"), _import_benchmark("speed.report")
    from sdfeel.files import check_writable

    if out is not None:
        check_writable(out)
    results = suite.run_bench(suite.QUICK if quick else suite.FULL, say)
    if as_json:
        print_json(results)
    else:
        for title, rows in report.bench_tables(results):
            _show(title, rows)
    if out is not None:
        for path in report.write_bench(results, out):
            say(f"written: {path}")


@app.command()
def deploy(quick: QuickFlag = False, as_json: JsonFlag = False) -> None:
    """Measure what a deployment costs beyond computing: time, bytes and memory."""
    results = _import_benchmark("deployment.costs").run(quick)
    if as_json:
        print_json(results)
    else:
        rows = [{"key": key, "value": f"{value:.3g}"} for key, value in results.items()]
        _show("Deployment", rows)


def _import_benchmark(module: str) -> Any:
    """Import a module of `benchmarks/`; InputError where sdfeel is installed without them."""
    if not (BENCHMARKS / module.replace(".", "/")).with_suffix(".py").is_file():
        remedy = (
            "there is nothing: benchmarks come with the repository, not with the package; "
            "clone it, and call `make setup` and `.venv/bin/sdfeel bench` there"
        )
        raise InputError("benchmarks", str(BENCHMARKS), remedy)
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    return importlib.import_module(module)


def _show(title: str, rows: list[dict[str, str]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(row.get(column, "")) for column in columns))
    console.print(table)
