"""`sdfeel topology`: what a graph of edge servers and an averager give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from sdfeel.cli.output import JsonFlag, console, plain_table, print_json
from sdfeel.errors import InputError
from sdfeel.network import AVERAGERS, GRAPHS, Averager, Network, read_graph
from sdfeel.network.graphs import liars_survived

__all__ = ["topology"]


def topology(
    graph: Annotated[str, typer.Argument(help=f"{', '.join(GRAPHS)}; or a file of links.")],
    servers: Annotated[int | None, typer.Option(help="Number of edge servers.")] = None,
    samples_per_server: Annotated[
        str, typer.Option(help="Samples of each cluster, such as 3,1,2. Equal by default.")
    ] = "",
    averager: Annotated[str, typer.Option(help=f"{', '.join(AVERAGERS)}.")] = "paper",
    alpha: Annotated[int, typer.Option(help="Exchanges in an inter-cluster aggregation.")] = 1,
    seed: Annotated[int, typer.Option(help="For random and small-world graphs.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Draw the network into this file.")] = None,
    as_json: JsonFlag = False,
    sizes: Annotated[str, typer.Option(hidden=True)] = "",  # as it was called before
) -> None:
    """Show the mixing matrix and zeta of a graph, and what every averager gains and costs on it."""
    flag = "--samples-per-server" if samples_per_server else "--sizes"
    shares = _numbers(flag, samples_per_server or sizes)
    network = _network(graph, servers if servers is not None else len(shares) or None, seed)
    if shares:
        if len(shares) != network.servers:
            remedy = f"one number for each of {network.servers} servers"
            raise InputError(flag, samples_per_server or sizes, remedy)
        network = network.with_samples(shares)
    chosen = network.averager(averager, alpha)
    if figure is not None:
        from sdfeel.reports.figures import save_figure
        from sdfeel.reports.topology import draw_topology

        drawn = draw_topology(network.graph.edges(), [1] * network.servers, zeta=network.zeta)
        save_figure(drawn, figure)
    if as_json:
        print_json(_as_dict(graph, network, chosen))
    else:
        _print(graph, network, chosen)


def _numbers(flag: str, text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise InputError(flag, text, "numbers with commas between, such as 3,1,2") from None


def _network(graph: str, servers: int | None, seed: int) -> Network:
    if graph not in GRAPHS and ("." in graph or "/" in graph):
        links = read_graph(graph, servers)
        return Network([[d] for d in range(links.number_of_nodes())], links)
    options = {"seed": seed} if graph in ("random", "small-world") else {}
    return Network.build(graph, 10 if servers is None else servers, 1, **options)


def _as_dict(graph: str, network: Network, averager: Averager) -> dict[str, object]:
    return {
        "graph": graph,
        "servers": network.servers,
        "links": network.graph.number_of_edges(),
        "zeta": network.zeta,
        "averager": averager.name,
        "contraction": averager.contraction,
        "exchanges": averager.exchanges,
        "model_times": averager.model_times,
        "amplification": averager.amplification,
        "negative_weights": averager.has_negative_weights,
        "liars_survived": liars_survived(network.graph),
        "mixing": averager.operator.tolist(),
    }


def _print(graph: str, network: Network, averager: Averager) -> None:
    links = network.graph.number_of_edges()
    console.print(f"{graph}: {network.servers} servers, {links} links, zeta {network.zeta:.4f}")
    table = plain_table("averager", ">exchanges", ">model times", ">contraction")
    for name in AVERAGERS:
        alpha = averager.exchanges if averager.takes_alpha else 1
        other = averager if name == averager.name else network.averager(name, max(alpha, 1))
        mark = "bold" if name == averager.name else ""
        cells = (str(other.exchanges), f"{other.model_times:.3g}", f"{other.contraction:.4g}")
        table.add_row(name, *cells, style=mark)
    console.print(table)
    console.print("model times: cost in sendings of one model over one link (exact: to the cloud)")
    if averager.has_negative_weights:
        console.print("Some weights are negative: it converges, but is no convex average.")
    liars = liars_survived(network.graph)
    console.print(
        f"Lying servers, wherever they are: the others stay connected without any "
        f"{liars['connected']}; averager trimmed bears {liars['trimmed']}."
    )
    if network.servers <= 12:
        console.print(f"Operator of {averager.name} (columns: receiving servers):")
        rows = np.array2string(
            averager.operator, precision=3, suppress_small=True, max_line_width=80
        )
        console.print(rows, highlight=False)
