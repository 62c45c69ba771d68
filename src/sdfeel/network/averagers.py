"""Averagers: how edge servers come to agree.

The paper's repeated exchange P^alpha is one member of a family. Every averager that works between
neighbours is a sequence of exchanges of the same form,

    W <- W (I - c_l A),   l = 1, ..., exchanges,

with one matrix A supported on the graph and the diagonal, and one step c_l for each exchange. So a
simulation, a run spread over machines and a deployment all carry out the same thing, one exchange
after the other. `A m-tilde = 0` and `A diag(m-tilde)` symmetric keep the weighted mean, also when
a link is left out on both of its sides and its weight goes back to the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdfeel.errors import InputError, closest
from sdfeel.network.mixing import Matrix, metropolis_matrix, spectrum, weighted_norm
from sdfeel.validation import whole_number

Route = Literal["neighbours", "all-reduce", "cloud"]
CHUNKS = 64


@dataclass(frozen=True, eq=False)
class Averager:
    """An averager on a network: its exchanges, their contraction and their price.

    name         as in `AVERAGERS`
    route        the links it uses: between neighbours, an all-reduce over them, or a cloud
    shares       m-tilde: the weights of the mean that it keeps
    generator    A above (D x D); for all-reduce and cloud I - m-tilde 1'
    steps        c_1, ..., c_exchanges
    contraction  the exact factor by which disagreement shrinks, in the m-weighted norm
    model_times  its cost, in times that it takes to send one model over one server-server link
                 (for the cloud: over a server-cloud link)
    hops         messages one after the other in an all-reduce; elsewhere an exchange is one
    takes_alpha  whether the user says how many exchanges; the others need as many as they need
    whole_graph  made for one graph only: where a server or link is lost it has to be made anew
    overshoots   later exchanges undo what earlier ones overdid, so a link that is lost in one of
                 them stays out of the others; negative weights are meant
    links        those of the graph that it was built on, where the network has several; else None
    rule         a method, where servers do not take a weighted sum of what they hear; else None
    among        the servers that take part, where others keep their models; None for all. `shares`
                 and `generator` are then of these

    >>> sdfeel.Network.ring(10, 5).averager('chebyshev', 5).exchanges
    5
    """

    name: str
    route: Route
    shares: NDArray[np.float64]
    generator: Matrix
    steps: tuple[float, ...]
    contraction: float
    model_times: float
    hops: int = 0
    takes_alpha: bool = False
    whole_graph: bool = False
    overshoots: bool = False
    links: tuple[tuple[int, int], ...] | None = None
    among: tuple[int, ...] | None = None
    rule: Any = None

    @property
    def exchanges(self) -> int:
        return len(self.steps)

    @property
    def messages(self) -> int:
        """Messages that have to follow one another, for a latency that each of them has."""
        return self.hops if self.route == "all-reduce" else self.exchanges

    @property
    def models_sent(self) -> int:
        """Models that all servers together send: over links to and fro, or to a cloud and back."""
        servers = len(self.shares)
        if self.route == "cloud":
            return 2 * servers
        if self.route == "all-reduce":
            return 2 * (servers - 1)
        off = self.generator - np.diag(self.generator.diagonal())
        return int((off != 0).sum()) * self.exchanges

    def of_all(self, shares: NDArray[np.float64]) -> Averager:
        """The same exchange of all servers, with these shares: the others keep their models."""
        if self.among is None:
            return self
        A = np.zeros((len(shares), len(shares)))
        A[np.ix_(self.among, self.among)] = self.generator
        return replace(self, shares=shares, generator=A, among=None)

    @cached_property
    def arcs(self) -> tuple[tuple[int, int], ...] | None:
        """Who sends to whom (a to b), where some links carry models one way; else None."""
        sends = self.generator - np.diag(self.generator.diagonal()) != 0
        if self.route != "neighbours" or self.among is not None or (sends == sends.T).all():
            return None
        return tuple((int(a), int(b)) for a, b in zip(*np.nonzero(sends), strict=True))

    def exchange(self, number: int) -> Matrix:
        """The D x D matrix of one exchange, numbered from 0: eq. (5) with p[j, d] its entries."""
        return np.eye(len(self.shares)) - self.steps[number] * self.generator

    @cached_property
    def operator(self) -> Matrix:
        """The product of all exchanges; acts on the right: W <- W operator."""
        if self.contraction == 0.0:
            return np.outer(self.shares, np.ones_like(self.shares))
        product = np.eye(len(self.shares))
        for step in self.steps:
            product = product - step * (product @ self.generator)
        return product

    @cached_property
    def amplification(self) -> float:
        """Return by how much the exchanges together enlarge a rounding error on their way.

        The largest, over the exchanges, of (growth up to it) x (growth after it) in any
        eigendirection. `finite-time` reaches 1e10 and more on graphs with close eigenvalues or
        clusters of very different size: in float32 nothing would be left, use `all-reduce` there.
        """
        if self.route != "neighbours" or not self.steps:
            return 1.0
        root = np.sqrt(self.shares)
        symmetric = self.generator / root[:, None] * root[None, :]
        if not np.allclose(symmetric, symmetric.T):  # a matrix of the user's: at most this
            norms = [weighted_norm(self.exchange(n), self.shares) for n in range(self.exchanges)]
            return float(np.prod(np.maximum(norms, 1.0)))
        eigenvalues = np.linalg.eigvalsh(symmetric)
        factors = np.abs(1 - np.outer(self.steps, eigenvalues[1:]))
        with np.errstate(over="ignore"):
            # at least 1: the mean, which no exchange shrinks, is rounded as well
            before = np.maximum(np.cumprod(factors, axis=0).max(axis=1), 1.0)
            after = np.maximum(np.cumprod(factors[::-1], axis=0)[::-1].max(axis=1), 1.0)
        return float(np.max(before * np.append(after[1:], 1.0)))

    @property
    def has_negative_weights(self) -> bool:
        """Whether an exchange gives a model a negative weight (the paper's P often does)."""
        diagonal = 1 - max(self.steps, default=0.0) * self.generator.diagonal()
        return self.route == "neighbours" and bool((diagonal < -1e-12).any())


# builder(graph, shares, alpha), with the clusters' shares m-tilde: returns an averager, or the
# matrix P of one exchange, which is then carried out alpha times.
Builder = Callable[[nx.Graph, NDArray[np.float64], int], Any]


def build_averager(
    averager: str | Averager | Builder, graph: nx.Graph, cluster_shares: ArrayLike, alpha: int = 1
) -> Averager:
    """An averager on `graph` for clusters with the shares m-tilde: by its name, or one's own.

    `alpha` is the number of exchanges of those that take it. One's own is a function like those of
    the table, or an `Averager` that was built for this very network.
    """
    if isinstance(averager, str) and averager not in AVERAGERS:
        raise InputError("averager", averager, closest(averager, AVERAGERS))
    alpha = whole_number(alpha, remedy="a whole number of exchanges, at least 1", field="alpha")
    shares = np.asarray(cluster_shares, dtype=float)
    if len(shares) == 1:
        route: Route = "cloud" if averager == "exact" else "neighbours"
        name = averager if isinstance(averager, str) else "own"
        steps = (1.0,) if route == "cloud" else ()
        return Averager(name, route, shares, np.zeros((1, 1)), steps, 0.0, float(len(steps)))
    if isinstance(averager, str) and not nx.is_connected(graph):
        return _by_parts(averager, graph, shares, int(alpha))
    if isinstance(averager, str):
        named: Averager = AVERAGERS[averager](graph, shares, int(alpha))
        return named
    built: Any = averager
    if not isinstance(averager, Averager):
        built = averager(graph, shares, int(alpha))
    if not isinstance(built, Averager) and hasattr(built, "__len__"):
        from sdfeel.network.matrix import MatrixAverager  # which makes an `Averager`

        built = MatrixAverager.of(built)(graph, shares, int(alpha))
    return _checked(built, graph, shares)


def _by_parts(name: str, graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:
    """Every part of a graph that is not connected mixes by itself."""
    A = np.zeros((len(shares), len(shares)))
    for part in nx.connected_components(graph):
        servers = sorted(part)
        if len(servers) == 1:
            continue
        places = {server: place for place, server in enumerate(servers)}
        inside = nx.relabel_nodes(graph.subgraph(servers), places)
        shares_inside = shares[servers] / shares[servers].sum()
        averager: Averager = AVERAGERS[name](inside, shares_inside, alpha)
        if averager.route != "neighbours" or len(set(averager.steps)) > 1 or averager.whole_graph:
            remedy = "needs a connected graph in every round; paper and metropolis do not"
            raise InputError("averager", name, remedy)
        A[np.ix_(servers, servers)] = averager.steps[0] * averager.generator
    return Averager(
        name, "neighbours", shares, A, (1.0,) * alpha, 1.0, float(alpha), takes_alpha=True
    )


def _checked(averager: Any, graph: nx.Graph, shares: NDArray[np.float64]) -> Averager:
    """Check that a user's averager keeps the weighted mean of these clusters, over these links."""
    if not isinstance(averager, Averager):
        raise InputError(
            "averager", averager, "a name, an `Averager`, or a function (graph, shares, alpha) -> "
            "`Averager`"
        )  # fmt: skip
    if averager.shares.shape != shares.shape or not np.allclose(averager.shares, shares):
        remedy = (
            "was built for clusters of another size: build it on network.with_samples(...), or "
            "pass its name or the function that builds it"
        )
        raise InputError("averager", averager.name, remedy)
    A = averager.generator
    if not (np.allclose(A.sum(axis=0), 0) and np.allclose(A @ shares, 0)):
        remedy = (
            "moves the weighted mean: the columns of its generator must sum to 0, and the "
            "generator times m-tilde must be 0"
        )
        raise InputError("averager", averager.name, remedy)
    if averager.route == "neighbours":
        for a, b in zip(*np.nonzero(A), strict=True):
            if a != b and not graph.has_edge(a, b):
                remedy = f"uses a link {a}-{b} that the network does not have"
                raise InputError("averager", averager.name, remedy)
    return averager


def _paper(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:
    """P^alpha with the paper's P: contraction zeta^alpha."""
    eigen = spectrum(graph, shares)
    step = 2 / (eigen.largest + eigen.smallest)
    return Averager(
        "paper", "neighbours", shares, eigen.laplacian, (step,) * alpha, eigen.zeta**alpha, alpha,
        takes_alpha=True,
    )  # fmt: skip


def _metropolis(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:
    """Like `paper`, without negative weights: slower, and safe to interpret as averaging."""
    P = metropolis_matrix(graph, shares)
    root = np.sqrt(shares)
    eigenvalues = np.linalg.eigvalsh(P / root[:, None] * root[None, :])
    contraction = float(max(abs(eigenvalues[0]), abs(eigenvalues[-2]))) ** alpha
    A = np.eye(len(shares)) - P
    return Averager(
        "metropolis", "neighbours", shares, A, (1.0,) * alpha, contraction, alpha, takes_alpha=True
    )


def _chebyshev(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:
    """The best polynomial of degree alpha that knows only lambda_1 and lambda_{D-1}.

    Contraction 1 / T_alpha(1/zeta). It is carried out by its roots, in Leja order, rather than by
    the three-term recurrence: then an exchange needs no model of the exchange before the last.
    """
    eigen = spectrum(graph, shares)
    middle, half = (eigen.largest + eigen.smallest) / 2, (eigen.largest - eigen.smallest) / 2
    angles = (2 * np.arange(1, alpha + 1) - 1) * np.pi / (2 * alpha)
    roots = leja_order(middle + half * np.cos(angles))
    zeta = eigen.zeta
    with np.errstate(over="ignore"):  # 0 in the end, from some thousands of exchanges on
        contraction = 1 / np.cosh(alpha * np.arccosh(1 / zeta)) if zeta > 0 else 0.0
    steps = tuple(float(1 / root) for root in roots)
    return Averager(
        "chebyshev", "neighbours", shares, eigen.laplacian, steps, float(contraction), alpha,
        takes_alpha=True, overshoots=True,
    )  # fmt: skip


def _finite_time(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:  # noqa: ARG001
    """The exact weighted mean: (I - L'/lambda) over the distinct non-zero eigenvalues."""
    eigen = spectrum(graph, shares)
    roots = leja_order(eigen.distinct())
    steps = tuple(float(1 / root) for root in roots)
    return Averager(
        "finite-time", "neighbours", shares, eigen.laplacian, steps, 0.0, float(len(steps)),
        whole_graph=True, overshoots=True,
    )  # fmt: skip


def _all_reduce(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:  # noqa: ARG001
    """The exact weighted mean of (|S~_d| w_d, |S~_d|), by messages between neighbours.

    On a ring, in both directions at once: (D-1)/D model times. On other graphs pipelined in q
    chunks over a spanning tree of least depth h, up and down: (q + 2h - 1)/q model times.
    """
    D = len(shares)
    if D > 2 and all(degree == 2 for _, degree in graph.degree()):
        times, hops = (D - 1) / D, 2 * (D - 1)
    else:
        hops = CHUNKS + 2 * nx.radius(graph) - 1
        times = hops / CHUNKS
    A = np.eye(D) - shares[:, None]
    return Averager(
        "all-reduce", "all-reduce", shares, A, (1.0,), 0.0, times, hops, whole_graph=True
    )


def _exact(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:  # noqa: ARG001
    """Return what a cloud does: every server gets the weighted mean, P = m-tilde 1'."""
    A = np.eye(len(shares)) - shares[:, None]
    return Averager("exact", "cloud", shares, A, (1.0,), 0.0, 1.0)


AVERAGERS: dict[str, Builder] = {
    "paper": _paper,
    "metropolis": _metropolis,
    "chebyshev": _chebyshev,
    "finite-time": _finite_time,
    "all-reduce": _all_reduce,
    "exact": _exact,
}


def route_of(name: str) -> Route:
    """Which way models go with an averager of the table; no graph changes it."""
    return build_averager(name, nx.path_graph(2), (0.5, 0.5)).route


def leja_order(points: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """The points reordered so that partial products over them stay small (Leja, 1957).

    Each next point is the one furthest, in the product of distances, from those already taken.
    """
    left = np.array(points, dtype=float)
    if len(left) == 0:
        return left
    order = [int(np.argmax(np.abs(left)))]
    with np.errstate(divide="ignore"):
        distance = np.log(np.abs(left - left[order[0]]))
        for _ in range(len(left) - 1):
            free = np.ones(len(left), dtype=bool)
            free[order] = False
            order.append(int(np.flatnonzero(free)[np.argmax(distance[free])]))
            distance = distance + np.log(np.abs(left - left[order[-1]]))
    return left[order]
