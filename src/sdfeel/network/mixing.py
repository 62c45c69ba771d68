"""The mixing matrix of eq. (5) and its spectrum.

L is the Laplacian of the graph, Omega = diag(1/m-tilde), L' = L Omega, and

    P = I - 2 / (lambda_1 + lambda_{D-1}) L'.

P acts on the right of the models (one column a server): W <- W P. Its columns sum to 1, P m-tilde =
m-tilde, and P diag(m-tilde) is symmetric. The paper calls P doubly stochastic; with clusters of
unequal size its rows do not sum to 1 and its entries may be negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]

# Eigenvalues closer than this, relative to the largest, count as one.
SAME = 1e-9


@dataclass(frozen=True)
class Spectrum:
    """L' = L Omega and its eigenvalues, largest first; the last one is 0."""

    laplacian: Matrix
    eigenvalues: NDArray[np.float64]

    @property
    def largest(self) -> float:
        """lambda_1; 0 for a single server."""
        return float(self.eigenvalues[0])

    @property
    def smallest(self) -> float:
        """lambda_{D-1}, the smallest that is not 0; 0 for a single server."""
        return float(self.eigenvalues[-2]) if len(self.eigenvalues) > 1 else 0.0

    @property
    def zeta(self) -> float:
        """(lambda_1 - lambda_{D-1}) / (lambda_1 + lambda_{D-1}) = |lambda_2(P)|; 0 for D = 1."""
        if len(self.eigenvalues) == 1:
            return 0.0
        ratio = (self.largest - self.smallest) / (self.largest + self.smallest)
        return ratio if ratio > SAME else 0.0

    def distinct(self) -> NDArray[np.float64]:
        """The distinct non-zero eigenvalues, largest first."""
        values: list[float] = []
        for value in self.eigenvalues[:-1]:
            if not values or values[-1] - value > SAME * self.largest:
                values.append(float(value))
        return np.array(values)


@dataclass(frozen=True)
class MixingMatrix:
    """P with its zeta."""

    matrix: Matrix
    zeta: float


def spectrum(graph: nx.Graph, cluster_shares: ArrayLike) -> Spectrum:
    """L' and its eigenvalues by the symmetric solver: L' is similar to Omega^1/2 L Omega^1/2."""
    shares = np.asarray(cluster_shares, dtype=float)
    links: Matrix = nx.to_numpy_array(graph, nodelist=range(graph.number_of_nodes()), weight=None)
    L = np.diag(links.sum(axis=1)) - links
    root = 1 / np.sqrt(shares)
    eigenvalues = np.linalg.eigvalsh(root[:, None] * L * root[None, :])[::-1].copy()
    eigenvalues[-1] = 0.0
    return Spectrum(L / shares[None, :], eigenvalues)


def paper_mixing(graph: nx.Graph, cluster_shares: ArrayLike) -> MixingMatrix:
    """P = I - 2/(lambda_1 + lambda_{D-1}) L' (section II-B); P = [1] for a single server."""
    eigen = spectrum(graph, cluster_shares)
    D = len(eigen.eigenvalues)
    if D == 1:
        return MixingMatrix(np.eye(1), 0.0)
    step = 2 / (eigen.largest + eigen.smallest)
    return MixingMatrix(np.eye(D) - step * eigen.laplacian, eigen.zeta)


def metropolis_matrix(graph: nx.Graph, cluster_shares: ArrayLike) -> Matrix:
    """A mixing matrix without negative entries, for any cluster sizes.

    p[j, d] = min(m_d / (deg_d + 1), m_j / (deg_j + 1)) / m_d for neighbours, the rest on the
    diagonal: Metropolis-Hastings with the clusters' shares as its stationary law.
    """
    shares = np.asarray(cluster_shares, dtype=float)
    D = len(shares)
    flow = shares / (np.array([graph.degree[d] for d in range(D)]) + 1)
    P = np.zeros((D, D))
    for a, b in graph.edges():
        both = min(flow[a], flow[b])
        P[a, b], P[b, a] = both / shares[b], both / shares[a]
    P[np.diag_indices(D)] = 1 - P.sum(axis=0)
    return P


def weighted_norm(X: Matrix, weights: ArrayLike) -> float:
    """||Dm^-1/2 X Dm^1/2||_2, in which Lemma "H" holds for clusters of any size.

    For X = P - m-tilde 1' it is exactly zeta; the plain operator norm of the paper is larger as
    soon as the clusters differ.
    """
    root = np.sqrt(np.asarray(weights, dtype=float))
    return float(np.linalg.norm(X / root[:, None] * root[None, :], ord=2))
