"""The deployment's commands, from `sdfeel edge` to `sdfeel rollback`; see `provision` too."""

from __future__ import annotations

import math
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sdfeel.cli.output import JsonFlag, print_json, say
from sdfeel.cli.watch import WatchFlag, linger, watching
from sdfeel.errors import InputError, RunError
from sdfeel.toml import with_settings

if TYPE_CHECKING:
    from sdfeel.deploy.config import Deployment
    from sdfeel.deploy.facts.logs import LogFile

# The deployment room brings gRPC and is optional: each command imports it, `--help` does not.

__all__ = [
    "File",
    "client",
    "edge",
    "export",
    "launch",
    "record_action",
    "require_extra",
    "rollback",
    "status",
]

File = Annotated[Path, typer.Argument(help="The deployment file (TOML).")]
LogOption = Annotated[
    Path | None, typer.Option("--log", help="Append the JSON log here instead of standard output.")
]
States = Annotated[
    Path | None,
    typer.Option(
        "--states", help="Folder with a state folder for each edge in it (default: state)."
    ),
]
# What `--states` was called where an edge's own folder is not meant.
OldStates = Annotated[Path | None, typer.Option("--state", hidden=True)]


def edge(
    file: File,
    name: Annotated[str, typer.Argument(help="Which edge of the file this machine is.")],
    state: Annotated[
        Path | None, typer.Option(help="Folder of its checkpoints (default: state/NAME).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder: metrics and model, for `sdfeel plot`.")
    ] = None,
    holdout: Annotated[
        str, typer.Option(help="package.module:function that opens samples to evaluate on.")
    ] = "",
    stay: Annotated[
        bool,
        typer.Option(
            "--stay/--leave",
            help="When training is over: answer `status` and `export` until it is stopped, or end.",
        ),
    ] = True,
    log: LogOption = None,
) -> None:
    """Run an edge server: serve its clients and exchange models with its neighbours."""
    require_extra()
    from sdfeel.deploy.operate.programs import run_edge

    with _log(log) as stream:
        raise typer.Exit(run_edge(file, name, state, stream, out, holdout, stay))


def client(
    file: File,
    name: Annotated[str, typer.Argument(help="Which client of the file this machine is.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the file's table `local`, for this machine: model=my_project:make",
        ),
    ] = None,
    node_config: Annotated[
        str,
        typer.Option(help='What a Flower app finds as its node_config: `dataset-path="d" fast=1`.'),
    ] = "",
    log: LogOption = None,
    metrics: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Answer Prometheus there: /metrics, /readyz."),
    ] = "",
    model: Annotated[str, typer.Option(hidden=True)] = "",
    data: Annotated[str, typer.Option(hidden=True)] = "",
    trainer: Annotated[str, typer.Option(hidden=True)] = "",
    flower: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Run a client: train on its own data, send models and nothing else."""
    require_extra()
    from sdfeel.deploy.operate.programs import run_client

    old = {"--model": model, "--data": data, "--trainer": trainer, "--flower": flower}
    for flag, value in old.items():
        if value:
            key = "trainer=flower:" if flag == "--flower" else f"{flag[2:]}="
            raise InputError(flag, value, f"is `--set {key}{value}` now")
    local = _own_settings(settings or [])
    if node_config:
        from sdfeel.flower.nodes import read_config  # Flower is optional

        local["node_config"] = read_config("--node-config", node_config)
    with _log(log) as stream:
        raise typer.Exit(run_client(file, name, stream, local, metrics))


def _own_settings(settings: list[str]) -> dict[str, Any]:
    """What a client's machine has in the place of the file's table `local`."""
    own = with_settings({}, settings)
    local = own.pop("local", {})
    if not isinstance(local, dict):
        raise InputError("--set", f"local={local}", "a key of it, such as model=my_project:make")
    return {**own, **local}


def launch(
    file: File,
    logs: Annotated[Path | None, typer.Option(help="Folder for the nodes' logs.")] = None,
    fresh: Annotated[
        bool, typer.Option(help="Forget checkpoints and logs of an earlier run.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder with a run folder for each edge in it.")
    ] = None,
    watch: WatchFlag = False,
    kill: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME@SECONDS", help="kill -9 this node at this second, as a trial."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start killed nodes again, a second later.")
    ] = False,
) -> None:
    """Start every node of a deployment on this machine, for a trial, with one live view.

    If a node dies, it is named with its log, and the others go on; the status is then 1.
    """
    require_extra()
    from sdfeel.deploy.operate.launch import final_model, run_nodes

    if restart and not kill:
        raise InputError("--restart", True, "is for nodes that --kill NAME@SECONDS kills")
    with ExitStack() as around:
        page = None
        if watch:
            folders = [] if out is None else [out]
            page = around.enter_context(watching(folders, file))
        nodes = run_nodes(file, logs, fresh, out=out, kills=kill or (), restart=restart)
        try:
            _, path = final_model(nodes.deployment)
        except RunError:  # nobody has a checkpoint
            nodes.check()
            raise
        if nodes.problem:
            say(f"the weighted mean of the edges' last checkpoints is in {path}")
        nodes.check()
        typer.echo(f"finished; the weighted mean of all edges is in {path}")
        if page is not None:
            linger(page.address)


def status(
    file: File,
    as_json: JsonFlag = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an edge.")] = 2.0,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Show it again and again, until all edges have finished."),
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --follow.")] = 2.0,
    states: States = None,
    watch: Annotated[bool, typer.Option("--watch", hidden=True)] = False,
    state: OldStates = None,
) -> None:
    """Show every edge: its period, phase, clients, links, loss and accuracy.

    Ends with 0 if every edge is running or has finished; 1 if one does not answer; 3 if all answer
    and one is paused or has no clients; 2 for a mistake in the file or the call.
    """
    require_extra()
    import asyncio

    from sdfeel.deploy.config import load_deployment
    from sdfeel.deploy.operate import watching
    from sdfeel.deploy.operate.status import ask, exit_status, status_table

    if not (math.isfinite(timeout) and timeout > 0 and math.isfinite(every) and every > 0):
        raise InputError("--timeout, --every", (timeout, every), "seconds above 0")
    if watch:
        _renamed("--watch", "--follow")
    folder = _states(states, state)
    deployment = load_deployment(file)
    if (follow or watch) and not as_json:
        rows = asyncio.run(watching.follow(deployment, timeout, every, folder))
    else:
        rows = asyncio.run(ask(deployment, timeout, folder))
        if as_json:
            edges = [row.as_dict() for row in rows]
            print_json({"deployment": deployment.name, "edges": edges})
        else:
            Console().print(status_table(rows, deployment.name))
    raise typer.Exit(exit_status(rows))


def export(
    file: File,
    out: Annotated[Path, typer.Option(help="The model, by name and shape (safetensors).")],
    edge: Annotated[
        list[str] | None, typer.Option(help="Only this edge's model, not the mean of all.")
    ] = None,
    states: Annotated[
        Path | None,
        typer.Option(help="Folder with the state folders of edges: read them, and ask no edge."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer of an edge.")] = 5.0,
    as_json: JsonFlag = False,
    state: OldStates = None,
) -> None:
    """Write the weighted mean of all edges' last models, ready for load_state_dict.

    Edges are asked for theirs, wherever they are; of one that does not answer, `state` beside the
    file is read. What is found nowhere is left out, and named.
    """
    require_extra()
    from sdfeel.deploy.config import load_deployment
    from sdfeel.deploy.operate.export import export as write

    if not (math.isfinite(timeout) and timeout > 0):
        raise InputError("--timeout", timeout, "seconds above 0")
    deployment = load_deployment(file)
    made = write(deployment, out, edge or (), _states(states, state), timeout)
    record_action(deployment, "exported", periods=made.periods, path=str(made.path.resolve()))
    for name, problem in made.missing.items():
        say(f"note: without edge {name}: it {problem}", style="yellow")
    if as_json:
        about = {"written": str(made.path), "periods": made.periods, "values": made.model.size}
        more = {"weights": made.weights, "origins": made.origins, "missing": made.missing}
        print_json({**about, **more})
        return
    words = {"edge": "", "checkpoint": ", from its checkpoint"}
    say(f"{made.model.size} values, the mean of")
    for name, period in made.periods.items():
        share = f"{100 * made.weights[name]:.1f} %"
        say(f"  {share} {name} after period {period}{words[made.origins[name]]}")
    typer.echo(f"written: {made.path}")


def rollback(
    file: File,
    name: Annotated[
        str | None, typer.Argument(help="An edge. Default: all that have a state folder here.")
    ] = None,
    to: Annotated[
        int | None, typer.Option(help="Go back to this period, or to the last one before it.")
    ] = None,
    states: States = None,
    state: OldStates = None,
) -> None:
    """Go back to an older checkpoint, after a poisoned model; without --to, list what there is.

    Edges must be stopped. What is put aside is removed when training has passed it again.
    """
    require_extra()
    from sdfeel.deploy.config import load_deployment
    from sdfeel.deploy.operate.rollback import histories, roll_back

    deployment, folder = load_deployment(file), _states(states, state)
    if to is None:
        for edge_name, periods in histories(deployment, name, folder).items():
            typer.echo(f"{edge_name}: {' '.join(map(str, periods)) or 'no checkpoint'}")
        return
    gone_to = roll_back(deployment, to, name, folder)
    record_action(deployment, "rolled-back", periods=gone_to)
    for edge_name, period in gone_to.items():
        typer.echo(f"{edge_name} goes on from period {period}")


def _states(new: Path | None, old: Path | None) -> Path | None:
    if old is not None:
        _renamed("--state", "--states")
    return new or old


def _renamed(old: str, new: str) -> None:
    say(f"note: {old} is {new} now", style="yellow")


def record_action(deployment: Deployment, action: str, **about: Any) -> None:
    """In the audit log; that it cannot be written is said, and ends nothing."""
    from sdfeel.deploy.operate.audit import record

    problem = record(deployment, action, **about)
    if problem:
        say(f"note: {problem}", style="yellow")


def _log(path: Path | None) -> LogFile:
    """A file to append to, or standard output."""
    from sdfeel.deploy.facts.logs import LogFile

    try:
        return LogFile(path)
    except OSError as problem:
        raise InputError("--log", str(path), f"cannot be written: {problem.strerror}") from None


def require_extra() -> None:
    """Raise InputError unless the packages are there; they are imported later, each if needed."""
    for package in ("cryptography", "grpc", "prometheus_client"):
        if find_spec(package) is None:
            remedy = (
                "a deployment needs more packages: pip install '.[deploy]' in a clone of sdfeel"
            )
            raise InputError("installation", package, remedy)
