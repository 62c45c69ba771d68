"""The deployment's commands: from `sdfeel provision` to `sdfeel export`."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sdfeel.cli.output import print_json, say
from sdfeel.cli.watch import WatchFlag, linger, watching
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.deploy.facts.logs import LogFile

# The deployment room brings gRPC and is optional: each command imports it, `--help` does not.

__all__ = ["client", "edge", "export", "launch", "provision", "require_extra", "rollback", "status"]

File = Annotated[Path, typer.Argument(help="The deployment file (TOML).")]
LogOption = Annotated[
    Path | None, typer.Option("--log", help="Append the JSON log here instead of standard output.")
]


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
        bool, typer.Option(help="Answer `sdfeel status` after the end too, until it is stopped.")
    ] = False,
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
    model: Annotated[str, typer.Option(help="package.module:function that makes the model.")] = "",
    data: Annotated[
        str, typer.Option(help="package.module:function that opens this client's own data.")
    ] = "",
    trainer: Annotated[str, typer.Option(help="package.module:function; replaces both.")] = "",
    flower: Annotated[
        str, typer.Option(help="package.module:app, a Flower ClientApp; replaces all three.")
    ] = "",
    node_config: Annotated[
        str,
        typer.Option(help='What the app finds as its node_config, as `dataset-path="d" fast=1`.'),
    ] = "",
    log: LogOption = None,
) -> None:
    """Run a client: train on its own data, send models and nothing else."""
    require_extra()
    from sdfeel.deploy.operate.programs import run_client

    if flower:
        trainer = f"flower:{flower}"
    own: dict[str, Any] = {"model": model, "data": data, "trainer": trainer}
    if node_config:
        from sdfeel.flower.nodes import read_config  # Flower is optional

        own["node_config"] = read_config("--node-config", node_config)
    with _log(log) as stream:
        raise typer.Exit(run_client(file, name, stream, {k: v for k, v in own.items() if v}))


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
) -> None:
    """Start every node of a deployment on this machine, for a trial, with one live view."""
    require_extra()
    from sdfeel.deploy.operate.launch import final_model
    from sdfeel.deploy.operate.launch import launch as run

    with ExitStack() as around:
        page = None
        if watch:
            folders = [] if out is None else [out]
            page = around.enter_context(watching(folders, file))
        nodes = run(file, logs, fresh, out=out)
        _, path = final_model(nodes.deployment)
        typer.echo(f"finished; the weighted mean of all edges is in {path}")
        if page is not None:
            linger(page.address)


def provision(
    file: File,
    hours: Annotated[
        float | None,
        typer.Option(help="How long certificates are valid (default: as before; 24 at first)."),
    ] = None,
    node: Annotated[str | None, typer.Option(help="Only this node (also to renew it).")] = None,
    revoke: Annotated[
        list[str] | None, typer.Option(help="Revoke ROLE/NAME instead, such as client/c3.")
    ] = None,
    model: Annotated[
        bool,
        typer.Option(help="Write the first model, from local.model and the seed; renew nothing."),
    ] = False,
    passphrase: Annotated[
        bool,
        typer.Option(
            help="Protect ca.key with a passphrase (SDFEEL_CA_PASSPHRASE, or you are asked)."
        ),
    ] = False,
) -> None:
    """Make the CA and a certificate per node, or renew them; revoke one with --revoke."""
    require_extra()
    from sdfeel.deploy.config import load_deployment
    from sdfeel.deploy.trust.provision import Authority
    from sdfeel.deploy.trust.provision import provision as issue

    deployment = load_deployment(file)
    folder = deployment.path(deployment.security.folder)
    key = _passphrase(folder / "ca.key", wanted=passphrase)
    if revoke:
        pairs = [_role_and_name(text) for text in revoke]
        Authority(folder, key).revoke(pairs)
        typer.echo(f"revoked {', '.join(revoke)}; copy {folder / 'revoked.pem'} to every node")
        return
    if model:
        from sdfeel.deploy.client.torch_trainer import write_initial

        typer.echo(f"first model in {write_initial(deployment)}")
    # Beside --model, others keep what they have.
    made = issue(deployment, hours, node, missing=model and hours is None and node is None, key=key)
    if passphrase and key is not None:
        Authority(folder, key).protect(key)
    typer.echo(f"{len(made)} certificates in {folder}; copy revoked.pem with them")


def _passphrase(path: Path, wanted: bool) -> bytes | None:
    """From the environment, or asked for if the key has one and somebody is there to ask."""
    from sdfeel.deploy.trust.provision import passphrase

    found = passphrase()
    has_one = path.exists() and b"ENCRYPTED" in path.read_bytes()
    if found is None and (wanted or has_one) and sys.stdin.isatty():
        text = typer.prompt(f"passphrase of {path}", hide_input=True, confirmation_prompt=wanted)
        found = str(text).encode() or None
    if found is None and wanted:
        raise InputError("--passphrase", "", "set SDFEEL_CA_PASSPHRASE, or use a terminal")
    return found


def status(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an edge.")] = 2.0,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again and again, until all edges have finished.")
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --watch.")] = 2.0,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder with state folders of edges that have ended (default: state)."),
    ] = None,
) -> None:
    """Show every edge: its period, clients, links, loss and accuracy.

    Status 0 if every edge is running or has finished, else 1.
    """
    require_extra()
    import asyncio

    from sdfeel.deploy.config import load_deployment
    from sdfeel.deploy.operate.status import ask, is_well, status_table
    from sdfeel.deploy.operate.watching import follow

    if not (math.isfinite(timeout) and timeout > 0 and math.isfinite(every) and every > 0):
        raise InputError("--timeout, --every", (timeout, every), "seconds above 0")
    deployment = load_deployment(file)
    if watch and not as_json:
        rows = asyncio.run(follow(deployment, timeout, every, state))
    else:
        rows = asyncio.run(ask(deployment, timeout, state))
        if as_json:
            edges = [row.as_dict() for row in rows]
            print_json({"deployment": deployment.name, "edges": edges})
        else:
            Console().print(status_table(rows, deployment.name))
    if not is_well(rows):
        raise typer.Exit(1)


def export(
    file: File,
    out: Annotated[Path, typer.Option(help="The model, by name and shape (safetensors).")],
    edge: Annotated[
        list[str] | None, typer.Option(help="Only this edge's model, not the mean of all.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder with the edges' state folders: read them, ask nobody."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an edge's next word.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write the weighted mean of all edges' last models, ready for load_state_dict.

    Edges are asked for theirs, wherever they are; of one that has ended, `state` beside the file is
    read.
    """
    require_extra()
    from sdfeel.deploy.config import load_deployment
    from sdfeel.deploy.operate.export import export as write

    if not (math.isfinite(timeout) and timeout > 0):
        raise InputError("--timeout", timeout, "seconds above 0")
    made = write(load_deployment(file), out, edge or (), state, timeout)
    if as_json:
        print_json({"written": str(made.path), "periods": made.periods, "values": made.model.size})
        return
    periods = ", ".join(f"{name} {period}" for name, period in made.periods.items())
    say(f"{made.model.size} values after periods: {periods}")
    typer.echo(f"written: {made.path}")


def rollback(
    file: File,
    name: Annotated[
        str | None, typer.Argument(help="Which edge; all that have a state folder here if none.")
    ] = None,
    to: Annotated[
        int | None, typer.Option(help="Go back to this period, or to the last one before it.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder with the edges' state folders (default: state).")
    ] = None,
) -> None:
    """Go back to an older checkpoint, after a poisoned model; without --to, list what there is.

    Edges must be stopped. What is put aside is removed when training has passed it again.
    """
    require_extra()
    from sdfeel.deploy.config import load_deployment
    from sdfeel.deploy.operate.rollback import histories, roll_back

    deployment = load_deployment(file)
    if to is None:
        for edge_name, periods in histories(deployment, name, state).items():
            typer.echo(f"{edge_name}: {' '.join(map(str, periods)) or 'no checkpoint'}")
        return
    for edge_name, period in roll_back(deployment, to, name, state).items():
        typer.echo(f"{edge_name} goes on from period {period}")


def _role_and_name(text: str) -> tuple[str, str]:
    role, _, name = text.partition("/")
    if not name:
        raise InputError("revoke", text, "ROLE/NAME, such as client/c3")
    return role, name


def _log(path: Path | None) -> LogFile:
    """A file to append to, or standard output."""
    from sdfeel.deploy.facts.logs import LogFile

    try:
        return LogFile(path)
    except OSError as problem:
        raise InputError("--log", str(path), f"cannot be written: {problem.strerror}") from None


def require_extra() -> None:
    try:
        import cryptography
        import grpc
        import prometheus_client
    except ImportError as problem:
        raise InputError(
            "installation",
            problem.name,
            "deployment needs more packages: pip install sdfeel[deploy]",
        ) from None
    del cryptography, grpc, prometheus_client
