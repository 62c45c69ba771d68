"""Graphs of edge servers: by name, from an edge list, or from a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import networkx as nx
import numpy as np

from sdfeel.errors import InputError, closest, located

GraphLike: TypeAlias = "nx.Graph | Iterable[tuple[int, int]] | str"

MAX_FILE_BYTES = 64 * 2**20
# The mixing matrix of more servers fills a memory (800 MB), links of more a minute.
MAX_SERVERS = 10_000
MAX_LINKS = 5_000_000


def _ring(servers: int) -> nx.Graph:
    return nx.cycle_graph(servers) if servers > 2 else nx.path_graph(servers)


def _partial(servers: int) -> nx.Graph:
    """Every even server linked to every odd one: K_{3,3} for six servers, K_{5,5} for ten.

    For six servers this is the paper's figure 2(b), the hexagon with its three long diagonals
    (zeta = 1/3). The paper does not draw it for ten.
    """
    graph = nx.empty_graph(servers)
    graph.add_edges_from((a, b) for a in range(0, servers, 2) for b in range(1, servers, 2))
    return graph


def _ring_diagonals(servers: int) -> nx.Graph:
    """The other reading of "partially connected": a ring with its long diagonals."""
    if servers % 2:
        raise InputError("servers", servers, "ring-diagonals needs an even number of servers")
    graph = _ring(servers)
    graph.add_edges_from((d, d + servers // 2) for d in range(servers // 2))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


def _torus(servers: int) -> nx.Graph:
    """The most square grid with wrapped borders: 2 x 5 for ten servers."""
    rows = max(r for r in range(1, int(servers**0.5) + 1) if servers % r == 0)
    if rows == 1:
        remedy = "a torus needs rows x columns with both above 1: not a prime number"
        raise InputError("servers", servers, remedy)
    grid = nx.grid_2d_graph(rows, servers // rows, periodic=True)
    return nx.convert_node_labels_to_integers(grid, ordering="sorted")


def _random(servers: int, seed: int = 0, degree: float | None = None) -> nx.Graph:
    """Erdos-Renyi drawn again until it is connected; mean degree 2 ln D, at least 4, by default."""
    degree = max(4.0, 2 * math.log(servers)) if degree is None else degree
    _check_links("random", servers, min(degree, servers - 1))
    p = min(1.0, degree / max(servers - 1, 1))
    for attempt in range(1000):
        graph = nx.fast_gnp_random_graph(servers, p, seed=int(seed) * 1000 + attempt)
        if nx.is_connected(graph):
            return graph
    remedy = f"no connected random graph of {servers} servers in 1,000 draws; raise it"
    raise InputError("degree", degree, remedy)


def _small_world(servers: int, seed: int = 0, degree: int = 4, rewire: float = 0.2) -> nx.Graph:
    """Watts-Strogatz: a ring of `degree` neighbours with a share of the links rewired."""
    degree = min(int(degree), servers)  # networkx takes as many as servers for the full graph
    _check_links("small-world", servers, degree)
    return nx.connected_watts_strogatz_graph(servers, degree, rewire, tries=1000, seed=int(seed))


def _dumbbell(servers: int) -> nx.Graph:
    """Two full graphs of equal size, joined by one link: between its ends, numbers 0 and D/2."""
    if servers % 2:
        raise InputError("servers", servers, "a dumbbell needs an even number of servers")
    half = servers // 2
    graph = nx.disjoint_union(nx.complete_graph(half), nx.complete_graph(half))
    graph.add_edge(0, half)
    return graph


GRAPHS: dict[str, Callable[..., nx.Graph]] = {
    "ring": _ring,
    "path": nx.path_graph,
    "star": lambda servers: nx.star_graph(servers - 1),
    "full": nx.complete_graph,
    "partial": _partial,
    "ring-diagonals": _ring_diagonals,
    "torus": _torus,
    "dumbbell": _dumbbell,
    "random": _random,
    "small-world": _small_world,
}


def build_graph(name: str, servers: int, **options: float) -> nx.Graph:
    """A graph of `servers` edge servers by its name; `options` are the graph's own."""
    if servers < 1:
        raise InputError("servers", servers, "at least one edge server")
    if name not in GRAPHS:
        raise InputError("graph", name, closest(name, GRAPHS))
    if servers > MAX_SERVERS:
        raise InputError("servers", servers, f"at most {MAX_SERVERS:,} edge servers")
    if servers == 1:
        return nx.empty_graph(1)
    if name in ("full", "partial", "dumbbell"):
        _check_links(name, servers, servers - 1)
    try:
        return GRAPHS[name](servers, **options)
    except TypeError:
        remedy = f"{name} does not take all of these options"
        raise InputError("graph options", options, remedy) from None
    except InputError:
        raise
    except (nx.NetworkXException, ValueError, ArithmeticError) as problem:
        raise InputError("graph options", options or name, f"{name}: {problem}") from None


def _check_links(name: str, servers: int, degree: float) -> None:
    if not 0 <= degree * servers <= 2 * MAX_LINKS:
        raise InputError("graph", name, f"at most {MAX_LINKS:,} links, at least none")


def read_graph(path: str | Path, servers: int | None = None) -> nx.Graph:
    """A graph from a text file: one link `a b` per line, servers numbered from 0, `#` comments."""
    path = Path(path)
    edges = [
        _link(path.name, number, line)
        for number, line in enumerate(_lines(path), start=1)
        if line.split("#")[0].strip()
    ]
    if not edges and servers != 1:
        raise InputError("graph file", str(path), "no links found; one `a b` per line")
    if servers is None:
        named = {server for edge in edges for server in edge}
        servers = len(named)
        if max(named) >= servers:
            remedy = (
                f"servers are numbered from 0 without a gap: it names {servers} of them, "
                f"but also server {max(named)}"
            )
            raise InputError("graph file", str(path), remedy)
    with located(f"{path.name}: "):
        return as_graph(edges, servers)


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError("graph file", str(path), f"at most {MAX_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8").splitlines()
    except InputError:
        raise
    except (OSError, ValueError) as problem:  # a ValueError: no UTF-8, or a NUL in the path
        raise InputError("graph file", str(path), f"cannot be read: {problem}") from None


def _link(file: str, number: int, line: str) -> tuple[int, int]:
    words = line.split("#", maxsplit=1)[0].split()
    # Nobody counts servers with more digits, and Python would not read some thousands of them.
    if len(words) != 2 or not all(word.isdecimal() and len(word) < 19 for word in words):
        remedy = "two server numbers, such as `0 1`"
        raise InputError(f"{file}, line {number}", line.strip(), remedy)
    return int(words[0]), int(words[1])


def as_graph(graph: GraphLike, servers: int, *, is_connected: bool = True) -> nx.Graph:
    """Check any graph that a user may give: simple, undirected, on 0..D-1 and connected.

    Args:
        graph: a networkx graph, a name, or pairs of servers.
        servers: D.
        is_connected: whether it has to be; a graph of a single round need not.
    """
    if isinstance(graph, str):
        built = build_graph(graph, servers)
    elif isinstance(graph, nx.Graph):
        if graph.is_directed() or graph.is_multigraph():
            raise InputError("graph", type(graph).__name__, "an undirected simple networkx.Graph")
        built = nx.Graph(graph.edges())
        built.add_nodes_from(graph.nodes())
        nx.set_node_attributes(built, nx.get_node_attributes(graph, "pos"), "pos")
    else:
        try:
            links = [(int(a), int(b)) for a, b in graph]
        except (TypeError, ValueError):
            remedy = "a networkx.Graph, a name, or pairs of servers: [(0, 1), (1, 2)]"
            raise InputError("graph", graph, remedy) from None
        for link in links:
            if not all(0 <= end < servers for end in link):
                remedy = f"a link goes from one of the numbers 0 to {servers - 1} to another"
                raise InputError("graph", link, remedy)
        built = nx.empty_graph(servers)
        built.add_edges_from(links)
    nodes, wanted = set(built.nodes()), set(range(servers))
    if nodes != wanted:
        wrong = {"there is no": nodes - wanted, "missing are": wanted - nodes}
        shown = [f"{word} {sorted(of, key=str)[:5]}" for word, of in wrong.items() if of]
        remedy = f"its nodes must be 0 to {servers - 1}; {', '.join(shown)}"
        raise InputError("graph", f"{len(nodes)} nodes", remedy)
    loops = list(nx.selfloop_edges(built))
    if loops:
        raise InputError("graph", loops[:5], "a server is not its own neighbour: remove the loop")
    if is_connected:
        check_connected("graph", built)
    # numpy's integers pass for plain ones until somebody writes them into a record
    return nx.relabel_nodes(built, {node: int(node) for node in built})


def positions_of(graph: nx.Graph) -> list[list[float]] | None:
    """Return where servers stand, if each says so as networkx has it: `graph.nodes[0]["pos"]`.

    Only pictures use it. None where a server has no place, or one that is no pair of numbers.
    """
    places = nx.get_node_attributes(graph, "pos")
    try:
        pairs = [[float(value) for value in places[node]] for node in sorted(graph.nodes())]
    except (KeyError, TypeError, ValueError):
        return None
    is_map = all(len(pair) == 2 and all(map(math.isfinite, pair)) for pair in pairs)
    return pairs if is_map else None


def liars_survived(graph: nx.Graph) -> dict[str, int]:
    """How many lying servers a graph bears, wherever they are.

    connected  the honest can still reach one another: no exchange can do without
    trimmed    servers that drop as many of each value at either end still come to agree inside what
               the honest began with: 2 f + 1 of a graph's robustness (LeBlanc et al., 2013), of
               which half its algebraic connectivity is a lower bound (Shahrivar et al., 2015)
    """
    if graph.number_of_nodes() < 2:
        return {"connected": 0, "trimmed": 0}
    laplacian = nx.laplacian_matrix(graph).toarray().astype(float)
    robustness = math.ceil(float(np.linalg.eigvalsh(laplacian)[1]) / 2 - 1e-9)
    return {
        "connected": max(0, nx.node_connectivity(graph) - 1),
        "trimmed": max(0, (robustness - 1) // 2),
    }


def check_connected(field: str, graph: nx.Graph) -> None:
    """Raise InputError unless every server can be reached from every other."""
    parts = [sorted(part) for part in nx.connected_components(graph)]
    if len(parts) > 1:
        remedy = (
            f"the servers must be connected, but these parts have no link between them: "
            f"{', '.join(str(part[:8]) for part in parts[:5])}"
        )
        raise InputError(field, f"{len(parts)} parts", remedy)
