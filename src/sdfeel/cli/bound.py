"""`sdfeel bound`: what Theorem 1 promises for a setting, and whether it may be used there."""

from __future__ import annotations

import json
from typing import Annotated, cast

import typer
from rich.console import Console

from sdfeel.cli.output import JsonFlag, plain_table
from sdfeel.errors import InputError
from sdfeel.network import AVERAGERS, GRAPHS, Network
from sdfeel.network.clusters import Clusters
from sdfeel.network.graphs import build_graph
from sdfeel.theory.bound import Constants, Version
from sdfeel.theory.on_network import NetworkBound, bound_on

__all__ = ["bound"]

TERMS = {
    "start": ("2 Delta/(eta K)", "distance still to go: more iterations, a larger step"),
    "noise": ("eta L sigma^2 sum m_i^2", "mini-batch noise: larger batches, a smaller step"),
    "noise_deviation": ("2 eta^2 L^2 V1 sigma^2", "noise that drives the models apart"),
    "non_iid_deviation": ("8 eta^2 L^2 V2 kappa^2", "non-IID data that drives the models apart"),
}


def bound(
    smoothness: Annotated[float, typer.Option(help="L of Assumption 1.")],
    variance: Annotated[float, typer.Option(help="sigma^2: variance of a mini-batch gradient.")],
    non_iid: Annotated[float, typer.Option(help="kappa^2: squared degree of non-IIDness.")],
    gap: Annotated[float, typer.Option(help="Delta = F(start) - F(optimum).")],
    graph: Annotated[str, typer.Option(help=f"One of {', '.join(GRAPHS)}.")] = "ring",
    servers: Annotated[int, typer.Option(help="Number of edge servers.")] = 10,
    clients: Annotated[int, typer.Option(help="Number of clients, spread evenly.")] = 50,
    clients_per_server: Annotated[
        str | None, typer.Option(help="Of every server, such as 5,3,7 (in place of even).")
    ] = None,
    samples: Annotated[
        str | None, typer.Option(help="Samples of every client, such as 100,80 (default: equal).")
    ] = None,
    tau1: Annotated[int, typer.Option(help="Iterations between intra-cluster aggregations.")] = 1,
    tau2: Annotated[int, typer.Option(help="Intra- per inter-cluster aggregation.")] = 1,
    alpha: Annotated[int, typer.Option(help="Exchanges per inter-cluster aggregation.")] = 1,
    averager: Annotated[str, typer.Option(help=f"One of {', '.join(AVERAGERS)}.")] = "paper",
    lr: Annotated[float, typer.Option(help="Learning rate eta.")] = 0.01,
    iterations: Annotated[int, typer.Option(help="K.")] = 1000,
    beta: Annotated[float, typer.Option(help="Participation; below 1 a heuristic.")] = 1.0,
    version: Annotated[str, typer.Option(help="literal or corrected.")] = "literal",
    as_json: JsonFlag = False,
    sizes: Annotated[str | None, typer.Option(hidden=True)] = None,  # as it was called before
) -> None:
    """Compute Theorem 1 for a setting: its four terms, the largest, and whether it applies."""
    flag = "sizes" if clients_per_server is None else "clients-per-server"
    each = (flag, clients_per_server or sizes)
    result = bound_on(
        _network(graph, servers, clients, each, samples),
        Constants(smoothness, variance, non_iid, gap),
        tau1=tau1,
        tau2=tau2,
        alpha=alpha,
        averager=averager,
        lr=lr,
        iterations=iterations,
        beta=beta,
        version=cast("Version", version),
    )
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2, allow_nan=False))
    else:
        _show(result, Console())


def _network(
    graph: str, servers: int, clients: int, each: tuple[str, str | None], samples: str | None
) -> Network:
    flag, sizes = each
    if sizes is None:
        if servers < 1 or clients < servers:
            raise InputError("clients", clients, f"at least one for each of {servers} servers")
        even, more = divmod(clients, servers)
        members = [even + (server < more) for server in range(servers)]
    else:
        members = _whole_numbers(flag, sizes)
        if len(members) != servers:
            raise InputError(flag, sizes, f"{servers} numbers, one for each server")
    counts = None if samples is None else _whole_numbers("samples", samples)
    return Network(Clusters.of_sizes(members), build_graph(graph, servers), counts)


def _whole_numbers(name: str, text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError(name, text, "whole numbers above 0 with commas between, such as 5,3,7")
    return [int(word) for word in words]


def _show(result: NetworkBound, console: Console) -> None:
    theorem, schedule = result.theorem, result.theorem.schedule
    console.print(
        f"[bold]Theorem 1, {schedule.version}[/]   zeta {result.zeta:.4g}, contraction "
        f"{schedule.contraction:.4g} per inter-cluster aggregation ({result.averager.name})"
    )
    console.print(
        f"Lambda {schedule.Lambda:.4g}   V1 {theorem.V1:.4g}   V2 {theorem.V2:.4g}   "
        f"V3 {schedule.V3:.4g}"
    )
    table = plain_table("term", "formula", ">value", ">share", "what it is")
    for name, value in theorem.terms.items():
        formula, meaning = TERMS[name]
        share = f"{100 * value / theorem.bound:.0f} %" if 0 < theorem.bound < float("inf") else "-"
        style = "bold" if name == theorem.dominant else None
        table.add_row(name, formula, f"{value:.4g}", share, meaning, style=style)
    table.add_section()
    table.add_row("bound", "on the mean squared gradient", f"{theorem.bound:.4g}", "", "")
    console.print(table)
    console.print(f"The largest term is [bold]{theorem.dominant}[/]: {TERMS[theorem.dominant][1]}.")
    colour = "green" if theorem.conditions_hold else "red"
    console.print(f"[{colour}]{theorem.verdict}[/]")
    for note in result.notes:
        console.print(f"[yellow]note:[/] {note}")
