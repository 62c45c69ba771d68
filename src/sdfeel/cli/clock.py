"""`sdfeel clock`: what a round costs in simulated seconds."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from sdfeel.cli.output import JsonFlag, console, print_json

__all__ = ["clock"]


def clock(
    scheme: Annotated[str, typer.Option(help="sd-feel, hierfavg, fedavg, feel, ...")] = "sd-feel",
    tau1: Annotated[int, typer.Option(help="Local updates between uploads.")] = 2,
    tau2: Annotated[int, typer.Option(help="Uploads between exchanges.")] = 1,
    alpha: Annotated[int, typer.Option(help="Exchanges.")] = 5,
    profile: Annotated[str, typer.Option(help="Latency profile: a name or a TOML file.")] = "paper",
    averager: Annotated[str, typer.Option(help="How servers agree.")] = "paper",
    graph: Annotated[str, typer.Option(help="Graph of the servers.")] = "ring",
    servers: Annotated[int, typer.Option(help="Number of edge servers.")] = 10,
    clients: Annotated[int, typer.Option(help="Clients per server.")] = 5,
    parameters: Annotated[int, typer.Option(help="Numbers in a model.")] = 21840,
    up: Annotated[str, typer.Option(help="Codec from clients to servers.")] = "float32",
    down: Annotated[str, typer.Option(help="Codec from servers to clients.")] = "float32",
    between: Annotated[str, typer.Option(help="Codec between servers.")] = "float32",
    flops: Annotated[
        float | None, typer.Option(help="FLOPs of a local update, for profile `counted`.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulated seconds and bytes per round, and what they go into."""
    from sdfeel.algorithm.schedule import Schedule
    from sdfeel.algorithm.schemes import Algorithm
    from sdfeel.clock import load_profile
    from sdfeel.network import Network

    latency = load_profile(profile)
    if latency.flops_per_step is None:
        latency = latency.with_flops(flops or _paper_cnn_flops())
    algorithm = Algorithm.of(
        scheme,
        Network.build(graph, servers, clients),
        Schedule(tau1, tau2, alpha),
        profile=latency,
        parameters=parameters,
        averager=averager,
        codecs={"up": up, "down": down, "between": between},
    )
    cost, sent = algorithm.round_cost(), algorithm.round_bytes()
    by_way = {"up": cost.upload, "down": cost.download, "between": cost.exchange}
    report = {
        "scheme": scheme,
        "profile": profile,
        "iterations_per_round": algorithm.schedule.tau,
        "seconds_per_round": cost.total,
        "compute": cost.compute,
        "upload": cost.upload,
        "exchange": cost.exchange,
        "download": cost.download,
        "seconds_by_way": by_way,
        "bytes_per_round": sent,
    }
    if as_json:
        print_json(report)
        return
    table = Table("part of a round", "codec", "bytes", "seconds", "share")
    table.add_row("compute", "", "", f"{cost.compute:.6f}", f"{cost.compute / cost.total:.0%}")
    for way, codec in (("up", up), ("between", between), ("down", down)):
        seconds = by_way[way]
        share = f"{seconds / cost.total:.0%}"
        table.add_row(way, codec, f"{sent[way]:,.0f}", f"{seconds:.6f}", share)
    whole = f"{sum(sent.values()):,.0f}"
    table.add_row("a round", "", whole, f"{cost.total:.6f}", "", style="bold")
    console.print(f"{scheme}, {algorithm.schedule.tau} iterations a round, profile {profile}")
    console.print(table)


def _paper_cnn_flops() -> float:
    from sdfeel.models import build, count_flops

    return count_flops(build("mnist-cnn", (1, 28, 28), 10, 0), (1, 28, 28), 10)
