"""`sdfeel watch`: the live page of runs and of a deployment; and `--watch` of other commands."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdfeel.cli.output import say
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.page.prediction import Prediction
    from sdfeel.page.server import PageServer

__all__ = ["WatchFlag", "linger", "watch", "watching"]

WatchFlag = Annotated[
    bool, typer.Option("--watch", help="Serve the live page meanwhile, and print its address.")
]


def watch(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders with runs below them (default: runs)."),
    ] = None,
    deployment: Annotated[
        Path | None,
        typer.Option(
            help="A deployment file; its edges are asked with the operator's certificate."
        ),
    ] = None,
    states: Annotated[
        Path | None, typer.Option(help="Folder with the state folders of edges that have ended.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Latency profile: show what the clock predicts, beside the deployment."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the page; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; another one than 127.0.0.1 needs a token.")
    ] = "127.0.0.1",
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser if there is a display.")
    ] = True,
    save: Annotated[
        Path | None,
        typer.Option(help="Write the page as it is now into one file that needs no server."),
    ] = None,
    state: Annotated[Path | None, typer.Option(hidden=True)] = None,  # as it was called before
) -> None:
    """Show runs, comparisons and deployments in a browser while they go on.

    The page only reads. Its address is the first line of standard output. Ctrl-C ends it.
    """
    chosen = list(folders or ([] if deployment else [Path("runs")]))
    for folder in chosen:
        if folder.exists() and not folder.is_dir():
            raise InputError("folder", str(folder), "must be a folder of a run, or of runs")
    prediction = None
    if profile is not None and deployment is None:
        raise InputError("--profile", profile, "is for a deployment: give --deployment FILE too")
    if deployment is not None:
        from sdfeel.cli.deploy import require_extra

        require_extra()
        from sdfeel.deploy.config import load_deployment
        from sdfeel.deploy.operate.asking import operator

        about = load_deployment(deployment)
        operator(about)
        if profile is not None:
            from sdfeel.page.prediction import predicted

            prediction = predicted(about, profile)
    if save is not None:
        _save(save, chosen, deployment, states or state, prediction)
        return
    with watching(
        chosen, deployment, states or state, prediction, port=port, host=host, opens=opens
    ):
        threading.Event().wait()


def _save(
    path: Path,
    folders: list[Path],
    deployment: Path | None,
    states: Path | None,
    prediction: Prediction | None,
) -> None:
    from sdfeel.page.deployment import Watcher
    from sdfeel.page.runs import Runs
    from sdfeel.page.saved import save_page
    from sdfeel.page.views import Views

    if path.suffix not in (".html", ".htm"):
        raise InputError("--save", str(path), "the name of a page, such as runs.html")
    watcher = None if deployment is None else Watcher(deployment, states, prediction)
    if watcher is not None:
        watcher.start()
        watcher.wait()
    size = save_page(Views(Runs(folders), watcher), path)
    if watcher is not None:
        watcher.stop()
    print(f"{path}: {size / 1e6:.1f} MB, opens in a browser without a server", flush=True)


@contextmanager
def watching(
    folders: list[Path],
    deployment: Path | None = None,
    state: Path | None = None,
    prediction: Prediction | None = None,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    opens: bool = True,
    quietly: bool = False,
) -> Iterator[PageServer]:
    """The page while inside; its address is printed, on standard error if `quietly`."""
    from sdfeel.page.deployment import Watcher
    from sdfeel.page.runs import Runs
    from sdfeel.page.server import PageServer, serving
    from sdfeel.page.views import Views

    watcher = None if deployment is None else Watcher(deployment, state, prediction)
    server = PageServer(Views(Runs(folders), watcher), host, port)
    with serving(server):
        if quietly:
            say(server.address)
        else:
            print(server.address, flush=True)
        if opens and _has_display():
            webbrowser.open(server.address)
        yield server


def linger(address: str) -> None:
    """After a run, for who sits at a terminal: until Ctrl-C."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        say(f"the page stays at {address} until Ctrl-C")
        threading.Event().wait()


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
