"""`sdfeel run`: one run from a TOML file or a preset."""

from __future__ import annotations

import shlex
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sdfeel.cli.output import (
    JsonFlag,
    SetOption,
    console,
    live_runs,
    plain_table,
    print_json,
    say,
    simulated,
)
from sdfeel.cli.ranks import start_ranks, started_here
from sdfeel.cli.watch import WatchFlag, linger, watching

if TYPE_CHECKING:
    from sdfeel.api import Result

__all__ = ["ConfigArgument", "Stopped", "run"]

ConfigArgument = Annotated[
    str, typer.Argument(help="A TOML file, the folder of a Flower project, or a preset's name.")
]


class Stopped(Exception):  # noqa: N818 - the user's wish, not an error
    """A run that the user stopped, and how to go on with it."""

    def __init__(self, command: str, folder: Path | None, number: int, says: bool = True) -> None:
        self.signal = number
        self.says = says
        remedy = f"its checkpoint is in {folder}; go on with\n  {command}" if folder else "not kept"
        super().__init__(f"stopped: {remedy}")


def run(
    config: ConfigArgument = "mnist-5k",
    settings: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the run: figure, metrics, checkpoint, models. Default: a new one "
            "in ./runs."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint in --out.")
    ] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Show what the real time was spent on.")
    ] = False,
    ranks: Annotated[int, typer.Option(help="Number of processes that share the clusters.")] = 1,
    watch: WatchFlag = False,
    as_json: JsonFlag = False,
    profile: Annotated[bool, typer.Option("--profile", hidden=True)] = False,  # its name before
) -> None:
    """Train one scheme with a simulated clock.

    Presets: `sdfeel run mnist-5k`, `sdfeel run cifar10`. A Flower project: `sdfeel run .`, with the
    app's own data, metrics and first model. Every key of the file can be set:
    `--set scheme=hierfavg --set schedule.tau1=3 --set data.name=fashion-mnist`.
    """
    from sdfeel.errors import InputError

    if resume and out is None:
        raise InputError("--resume", True, "needs --out, the folder of the run to go on with")
    chosen = [word for word in sys.argv[1:] if word != "--watch"]  # ranks need no page each
    if out is None and not started_here():
        out = _new_folder(_name_of(config))
        chosen = [*chosen, "--out", str(out)]
    with ExitStack() as around:
        page = None
        if watch and out is not None and not started_here():
            page = around.enter_context(watching([out], quietly=as_json))
        if ranks != 1 and not started_here():
            status = start_ranks(ranks, chosen)
            if status:
                raise typer.Exit(status)
        else:
            _run_here(config, settings, out, resume, timings or profile, ranks, as_json)
        if page is not None:
            linger(page.address)


def _run_here(
    config: str,
    settings: list[str] | None,
    out: Path | None,
    resume: bool,
    timings: bool,
    ranks: int,
    as_json: bool,
) -> None:
    from sdfeel.experiments.config import read_table, run_config
    from sdfeel.experiments.run import run as run_once
    from sdfeel.toml import with_settings

    table = read_table(config)
    table.pop("variant", None)
    settled = run_config(with_settings(table, settings or []), config)

    def announce(engine: str, reason: str) -> None:  # noqa: ARG001
        say(f"engine: {reason}")

    result_name = str(settled.table()["scheme"])
    with live_runs() as show:
        result = run_once(
            settled,
            out=out,
            resume=resume,
            on_ask=say,
            on_start=announce,
            on_progress=lambda progress: show(result_name, progress),
        )
    if result.leads:
        figure = _draw(result)
        _print(result, as_json, timings, figure)
    if result.interrupted:
        number = result.signal or signal.SIGINT
        again = _again(config, settings or [], out, ranks)
        raise Stopped(again, result.folder, number, result.leads)


def _again(config: str, settings: list[str], out: Path | None, ranks: int) -> str:
    words = ["sdfeel", "run", config, *(["--ranks", str(ranks)] if ranks != 1 else [])]
    for setting in settings:
        words += ["--set", setting]
    return shlex.join([*words, "--out", str(out), "--resume"])


def _name_of(config: str) -> str:
    """Return what a run is called: by its file, or the folder of a Flower project."""
    path = Path(config)
    if path.name == "pyproject.toml":
        path = path.parent
    return path.resolve().name if path.is_dir() else path.stem


def _new_folder(name: str) -> Path:
    """Return the first of runs/NAME-1, runs/NAME-2, ... that is not there yet."""
    number = 1
    while (folder := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return folder


def _draw(result: Result) -> Path | None:
    """The curves beside the numbers, for who looks rather than reads."""
    if result.folder is None:
        return None
    figure = result.folder / "curves.png"
    result.plot(figure)
    return figure


def _print(result: Result, as_json: bool, timings: bool, figure: Path | None) -> None:
    summary = {**result.summary(), "figure": None if figure is None else str(figure)}
    if timings:
        summary["phases"] = dict(result.phases)
    if as_json:
        print_json(summary)
        return
    if timings:
        console.print(_timings_table(result))
    is_evaluated = result.history["iteration"].iloc[-1] == result.iterations
    console.print(_ending(summary, is_evaluated), highlight=False, markup=False, soft_wrap=True)
    if figure is not None:
        console.print(f"see {figure}", highlight=False, markup=False, soft_wrap=True)
    if figure is not None and not result.interrupted:
        folder = shlex.quote(str(figure.parent))
        console.print("go on with:", highlight=False)
        for command in (f"sdfeel watch {folder}", f"sdfeel plot {folder} OTHER_RUN"):
            console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)


def _ending(summary: dict[str, Any], is_evaluated: bool) -> str:
    """Say in a line how a run ended; an interrupted one has no losses of its end."""
    loss, accuracy = (summary[name] if is_evaluated else None for name in ("loss", "accuracy"))
    parts = [
        f"{summary['scheme']}: {summary['iterations']:,} iterations",
        f"simulated {simulated(summary['seconds'])}",
        *([] if loss is None else [f"loss {loss:.4g}"]),
        *([] if accuracy is None else [f"accuracy {100 * accuracy:.1f} %"]),
    ]
    return ", ".join(parts)


def _timings_table(result: Result) -> Table:
    """Where the real time went, so that a user sees whether local SGD is the bulk of it."""
    table = plain_table("phase", ">seconds", ">share", title="Real time")
    measured = sum(result.phases.values())
    rest = max(result.elapsed - measured, 0.0)
    for name, seconds in [*result.phases.items(), ("everything else", rest)]:
        table.add_row(name, f"{seconds:.2f}", f"{100 * seconds / result.elapsed:.1f} %")
    return table
