"""`sdfeel plan`: how to train in the least simulated time; `sdfeel constants`: measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sdfeel.cli.output import (
    JsonFlag,
    SetOption,
    console,
    plain_table,
    print_json,
    print_written,
    say,
)
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.experiments.config import RunConfig
    from sdfeel.planner.plan import Plan
    from sdfeel.planner.race import Objective

__all__ = ["constants", "plan"]

METHODS = ("codecs.up", "codecs.down", "codecs.between", "correction")
PLAIN = ("float32", "none", "synchronous")  # values that a ranking does not need to spell out
ConfigArgument = Annotated[str, typer.Argument(help="A TOML file, or the name of a preset.")]
CodecOption = Annotated[
    str | None,
    typer.Option(help="Codecs to choose from on this way; one name fixes it."),
]


def plan(
    config: ConfigArgument = "mnist-5k",
    settings: SetOption = None,
    target_loss: Annotated[float | None, typer.Option(help="Training loss to reach.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(help="Test accuracy to reach.")] = None,
    budget: Annotated[float | None, typer.Option(help="Simulated seconds to spend.")] = None,
    tau1: Annotated[str, typer.Option(help="Values to choose from.")] = "1,2,3,5,10,20",
    tau2: Annotated[str, typer.Option(help="Values to choose from.")] = "1,2,3,5,10,20",
    alpha: Annotated[str, typer.Option(help="Values to choose from.")] = "1,2,3,5,10",
    averagers: Annotated[
        str, typer.Option(help="Averagers to choose from; `exact` needs a cloud.")
    ] = "paper, metropolis, chebyshev, finite-time, all-reduce",
    up: CodecOption = None,
    down: CodecOption = None,
    between: CodecOption = None,
    correction: Annotated[
        str | None,
        typer.Option(help="Corrections to choose from; one name fixes it, `none` is without."),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(help="Optimizers to choose from, such as sgd,momentum; else the run's own."),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(help="Rates to choose from, such as 0.01,0.03,0.1; else the run's own."),
    ] = None,
    graph: Annotated[
        str,
        typer.Option(help="given; or any: also on the graph that is predicted to need the least."),
    ] = "given",
    pilot: Annotated[int, typer.Option(help="Most iterations of the pilot.")] = 2000,
    racers: Annotated[int, typer.Option(help="Candidates in the first race.")] = 6,
    race_iterations: Annotated[
        int, typer.Option(help="Most iterations of all races with --budget; the rest is predicted.")
    ] = 30_000,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the predicted frontier: PNG and SVG.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for plan.json, which `sdfeel watch` shows.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Recommend the settings that reach a goal in the least simulated time.

    It trains a pilot and a few short probes, predicts every candidate, and lets the best few race:
    `sdfeel plan mnist-5k --target-loss 0.5`, `sdfeel plan mnist-5k --budget 60`. Optimizers and
    rates are compared before: `--optimizer sgd,momentum --rates 0.01,0.03,0.1`.
    Where devices differ, the best of other paces and their deadlines are tried against the winner.
    """
    from sdfeel.experiments.run import simulation_of
    from sdfeel.files import check_writable
    from sdfeel.planner.grid import choices_of
    from sdfeel.planner.planning import planned
    from sdfeel.planner.race import Effort, Objective

    objective = Objective.of(target_loss, target_accuracy, budget)
    named = {"codecs.up": up, "codecs.down": down, "codecs.between": between}
    named |= {"averager": averagers, "correction": correction}
    choose: dict[str, Any] = {k: _words(text) for k, text in named.items() if text is not None}
    for name, text in {"tau1": tau1, "tau2": tau2, "alpha": alpha}.items():
        choose[name] = _numbers(name, text)
    choose |= {"optimizer": _words(optimizer)} if optimizer else {}
    choose |= {"lr": _rates(rates)} if rates else {}
    choices, effort = choices_of(choose), Effort(pilot, racers, race_iterations, races=3)
    if figure is not None:
        check_writable(figure.parent)
    if out is not None:
        check_writable(out)
    simulation = simulation_of(_config(config, settings or []))
    plan = planned(simulation, objective, choices, effort, say, graph)
    if figure is not None:
        plan.plot(figure)
    written = None if out is None else plan.save(out)
    if as_json:
        print_json(plan.to_dict())
        return
    _show(plan)
    if written is not None:
        print_written(written)


def constants(
    config: ConfigArgument = "mnist-5k",
    settings: SetOption = None,
    visits: Annotated[int, typer.Option(help="Models of the path to measure at.")] = 4,
    as_json: JsonFlag = False,
) -> None:
    """Measure L, sigma^2, kappa^2 (inside and between clusters) and Delta along a short run."""
    from dataclasses import asdict

    from sdfeel.experiments.run import simulation_of
    from sdfeel.planner.laboratory import measured_constants

    last = [""]

    def progress(done: int, total: int, what: str) -> None:
        if what != last[0]:
            say(f"{done}/{total}  {what}")
        last[0] = what

    simulation = simulation_of(_config(config, settings or []))
    measured = measured_constants(simulation, visits=visits, progress=progress)
    if as_json:
        print_json(asdict(measured))
        return
    table = plain_table("constant", ">value", ">from", ">to", "what it is")
    for name, row in vars(measured).items():
        table.add_row(name, f"{row.value:.4g}", f"{row.low:.4g}", f"{row.high:.4g}", row.words)
    console.print(table)
    values = measured.constants()
    console.print(
        f"sdfeel bound --smoothness {values.smoothness:.4g} --variance {values.variance:.4g} "
        f"--non-iid {values.non_iid:.4g} --gap {values.gap:.4g} ...",
        soft_wrap=True,
    )


def _config(source: str, settings: list[str]) -> RunConfig:
    from sdfeel.experiments.config import read_table, run_config
    from sdfeel.toml import with_settings

    table = read_table(source)
    table.pop("variant", None)
    return run_config(with_settings(table, settings), source)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _numbers(name: str, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError(name, text, "whole numbers above 0 with commas between, such as 1,3,20")
    return tuple(sorted({int(word) for word in words}))


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(word) for word in text.split(","))
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise InputError("rates", text, "numbers above 0 with commas between, such as 0.01,0.1")
    return rates


def _show(plan: Plan) -> None:
    """Print what was chosen and why, and the ranking."""
    first, *others = plan.reasons
    console.print(first, style="bold", markup=False, soft_wrap=True)
    for line in others:
        console.print(line, markup=False, soft_wrap=True)
    rows, goal = plan.report["ranking"], plan.objective
    numbers = ("iterations", "seconds", "raced, s") if goal.target else ("predicted", "raced")
    columns = ("tau1", "tau2", "alpha", "averager")
    names = [name for name in (*METHODS, "pace") if name in rows[0]]
    differing = [name for name in names if len({row[name] for row in rows}) > 1]
    table = plain_table(*columns, *(["with"] if differing else []), *(f">{n}" for n in numbers))
    for row in rows:
        cells = [str(row[name]) for name in columns]
        cells += [_parts(row, differing)] if differing else []
        table.add_row(*cells, *(_times(row) if goal.target else _losses(row, goal)))
    console.print(table)
    if len({row.methods for row in plan.ranking}) > 1:
        same = [f"{name} {rows[0][name]}" for name in METHODS if name not in differing]
        console.print(f"in all rows: {', '.join(same)}" if same else "", highlight=False)


def _parts(row: dict[str, Any], names: list[str]) -> str:
    """Return in what a row differs from the plain algorithm, one thing a line."""
    parts = [
        f"{row[name]}\u00a0{name.removeprefix('codecs.')}"
        for name in names
        if row[name] not in PLAIN
    ]
    return "\n".join(parts) or "-"


def _losses(row: dict[str, Any], goal: Objective) -> list[str]:
    """What a budget ends with, predicted; and what the race ended with."""
    raced = "-"
    if row["raced_loss"] is not None:
        dropped = "dropped with " if row["dropped_at"] is not None else ""
        raced = f"{dropped}{goal.shown(row['raced_loss'])} at {row['raced_until']:.4g} s"
    return [goal.shown(row["predicted_loss"]), raced]


def _times(row: dict[str, Any]) -> list[str]:
    raced = row["raced_seconds"]
    if raced is None:
        dropped = row["dropped_at"]
        raced_text = "-" if dropped is None else f"dropped at {dropped:.4g}"
    else:
        raced_text = f"{raced:.4g}"
    if row["predicted_seconds"] is None:
        return ["never", "never", raced_text]
    return [f"{row['predicted_iterations']:.0f}", f"{row['predicted_seconds']:.4g}", raced_text]
