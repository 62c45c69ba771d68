"""`sdfeel verify`: others' published experiments, done again and held against their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from sdfeel.cli.output import JsonFlag, SetOption, console, print_json
from sdfeel.cli.reproduce import STYLES, carried_out

if TYPE_CHECKING:
    from sdfeel.experiments.reproduce import Verdict

__all__ = ["verify"]


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="mll-sgd, dumbbell, cycle-times, flute, hierfl; all by default."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The first part of each: all of them in ten minutes.")
    ] = False,
    list_them: Annotated[
        bool, typer.Option("--list", help="Say what there is and whose numbers they are.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds 0 to N-1, in place of each experiment's own number.")
    ] = None,
    settings: SetOption = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and verdicts.")] = Path(
        "runs/verify"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Redo experiments that others published, and hold the numbers against theirs.

    How far ours may be from theirs is stated beforehand, in the file of the experiment, with the
    reason. Runs that are done already are not done again; stop it at any time.
    """
    from sdfeel.experiments.reproduce import reproduction_of
    from sdfeel.experiments.reproduce.spec import PUBLISHED, read_target

    chosen = list(PUBLISHED.targets) if not names or "all" in names else names
    if list_them:
        _show_list([read_target(name, PUBLISHED) for name in chosen], as_json)
        return
    plan = reproduction_of(
        chosen,
        profile="quick" if quick else "default",
        dataset="mnist",
        seeds=seeds,
        settings=settings or [],
        collection=PUBLISHED,
    )
    verdicts = carried_out(plan, out)
    if as_json:
        print_json({"claims": [_row(verdict) for verdict in verdicts]})
        return
    console.print(_table(verdicts))
    console.print("written:", str(out / "index.html"), highlight=False, soft_wrap=True)


def _show_list(targets: list[Any], as_json: bool) -> None:
    if as_json:
        keys = ("name", "title", "source")
        print_json([{key: getattr(target, key) for key in keys} for target in targets])
        return
    for target in targets:
        console.print(Text(target.name, style="bold"), target.title, highlight=False)
        console.print(f"  {target.source}", highlight=False)


def _row(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    return {
        "experiment": verdict.figure,
        "name": claim.name,
        "claim": claim.says,
        "published": claim.published,
        "ours": verdict.value,
        "tolerance": claim.tolerance,
        "verdict": verdict.verdict,
        "note": verdict.note,
    }


def _table(verdicts: list[Verdict]) -> Table:
    from sdfeel.experiments.reproduce.document import verdict_rows

    table = Table("experiment", "claim", "verdict", "ours", "asked", box=None, pad_edge=False)
    for row in verdict_rows(verdicts):
        verdict = str(row["verdict"])
        table.add_row(
            str(row["figure"]),
            str(row["claim"]),
            Text(verdict, style=STYLES[verdict]),
            str(row["measured"]),
            str(row["asked for"]),
        )
    return table
