"""`sdfeel data`: what data there is, bringing it here, and how a partition shares it out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from sdfeel.cli.output import console, plain_table, say

# The data room brings torch, which takes seconds: each command imports it, `--help` does not.
if TYPE_CHECKING:
    from sdfeel.data.catalogue import Spec

__all__ = ["app"]

TITLE = "{dataset} over {clients} clients, {partition}, seed {seed}"

app = typer.Typer(
    help="List data sets, fetch them, and show how they are shared out to clients.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Name = Annotated[str, typer.Argument(help="A data set that `sdfeel data list` names.")]


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List the data sets, and say which are on this machine."""
    from sdfeel.data import DATASETS

    rows = [_state(dataset) for dataset in DATASETS.values()]
    if as_json:
        _print_json(rows)
        return
    table = plain_table("name", "here", ">MB", "what it is", title="Data sets")
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f}"
        table.add_row(row["name"], row["state"], size, row["about"])
    console.print(table)
    folder = rows[-1]["folder"].rpartition("/")[0]
    console.print(f"downloads go to {folder}", highlight=False, markup=False, soft_wrap=True)


def _state(dataset: Spec) -> dict[str, Any]:
    """Sizes only: quick. The checksums are verified whenever the data is loaded."""
    from sdfeel.data.catalogue import dataset_folder

    folder = dataset_folder(dataset.name)
    sizes = [_size(folder / file.name) for file in dataset.files]
    if all(size is None for size in sizes):
        state = "no"
    elif sizes == [file.size for file in dataset.files]:
        state = "yes"
    else:
        state = "damaged"
    return {
        "name": dataset.name,
        "state": state,
        "bytes": sum(file.size for file in dataset.files),
        "about": dataset.about,
        "folder": str(folder),
    }


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


@app.command("fetch")
def fetch_dataset(name: Name, as_json: Json = False) -> None:
    """Fetch a data set from the first source whose checksums are right.

    Interrupted downloads are continued. The folder is $SDFEEL_DATA, else ~/.cache/sdfeel.
    """
    from sdfeel.data import fetch

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=as_json,
    ) as bars:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        result = fetch(name, progress)
    if as_json:
        _print_json(
            {
                "name": result.name,
                "folder": str(result.folder),
                "source": result.source,
                "tried": list(result.tried),
            }
        )
        return
    console = Console(soft_wrap=True)
    for reason in result.tried:
        console.print(f"not from {reason}", style="dim", markup=False)
    console.print(f"{name}: ready in {result.folder} (from {result.source})", markup=False)


@app.command("show")
def show_partition(
    name: Name,
    clients: Annotated[int, typer.Option(help="How many clients share the data.")] = 50,
    how: Annotated[
        str, typer.Option("--partition", help="iid, shards, dirichlet or dirichlet-fedma.")
    ] = "dirichlet-fedma",
    seed: Annotated[int, typer.Option(help="What the partition is drawn from.")] = 0,
    concentration: Annotated[
        float | None, typer.Option(help="Of the Dirichlet partitions; theirs is 0.5.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw who holds what of which label: PNG and SVG.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how many samples of which labels every client would hold."""
    from sdfeel.data import DATASETS, partition, train_labels

    labels = train_labels(name)
    options = {} if concentration is None else {"concentration": concentration}
    parts = partition(how, labels, clients, seed, **options)
    classes = DATASETS[name].classes
    counts = np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
    summary = _summary(name, how, seed, counts)
    if as_json:
        _print_json(summary | {"histogram": counts.tolist()})
    else:
        _print_partition(summary, counts)
    if figure is not None:
        _draw(figure, summary, counts)


def _draw(path: Path, summary: dict[str, Any], counts: NDArray[np.int64]) -> None:
    from sdfeel.reports.figures import save_figure
    from sdfeel.reports.partition import draw_partition

    written = save_figure(draw_partition(counts, TITLE.format(**summary)), path)
    for file in dict.fromkeys(written):
        say(f"written: {file}")


def _summary(name: str, how: str, seed: int, counts: NDArray[np.int64]) -> dict[str, Any]:
    samples = counts.sum(axis=1)
    return {
        "dataset": name,
        "partition": how,
        "seed": seed,
        "clients": len(counts),
        "samples": samples.tolist(),
        "samples_min": int(samples.min()),
        "samples_mean": float(samples.mean()),
        "samples_max": int(samples.max()),
        "labels_per_client_mean": float((counts > 0).sum(axis=1).mean()),
        "largest_label_share_mean": float((counts.max(axis=1) / samples).mean()),
    }


def _print_partition(summary: dict[str, Any], counts: NDArray[np.int64]) -> None:
    title = TITLE.format(**summary)
    labels = [str(label) for label in range(counts.shape[1])]
    table = plain_table("client", ">samples", *(f">{label}" for label in labels), title=title)
    for client, row in enumerate(counts):
        cells = [str(count) if count else "." for count in row]
        table.add_row(str(client), str(row.sum()), *cells)
    console.print(table)
    console.print(
        "samples per client: least {samples_min}, mean {samples_mean:.1f}, most {samples_max}; "
        "labels per client: {labels_per_client_mean:.1f} on average; "
        "share of a client's commonest label: {largest_label_share_mean:.2f} on average".format(
            **summary
        )
    )


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
