"""A mixing matrix of the user's as an averager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError
from sdfeel.network.averagers import Averager
from sdfeel.network.mixing import weighted_norm

CLOSE = 1e-6


@dataclass(frozen=True)
class MatrixAverager:
    """W <- W P, alpha times, with P as given: p[j, d] is what server d takes of j's model, eq. (5).

    Its columns must sum to 1 and P m-tilde = m-tilde, with m-tilde the clusters' shares of the
    data: else the weighted mean would move. Entries beside the diagonal need a link.
    """

    rows: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, given: Any) -> MatrixAverager:
        """Make an averager of an array, a tensor or lists of rows."""
        try:
            listed = given.tolist() if hasattr(given, "tolist") else given  # arrays and tensors
            matrix = np.array(listed, dtype=float)
        except (TypeError, ValueError, RuntimeError):
            matrix = np.empty(0)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
            remedy = (
                "a name, a square matrix, an `Averager`, or a function (graph, shares, alpha) -> "
                "`Averager`"
            )
            raise InputError("averager", given, remedy)
        if not np.isfinite(matrix).all():
            raise InputError("averager", matrix.tolist(), "a matrix of finite numbers")
        sums = matrix.sum(axis=0)
        if not np.allclose(sums, 1, atol=CLOSE):
            column = int(np.argmax(np.abs(sums - 1)))
            remedy = (
                f"column {column} sums to {sums[column]:.6g}, not to 1: server d takes p[j, d] of "
                "the model of server j"
            )
            raise InputError("averager", matrix.tolist(), remedy)
        return cls(tuple(tuple(row) for row in matrix.tolist()))

    def __call__(self, graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:
        """Return the averager on a network; a matrix that does not fit it is refused by name."""
        P = np.array(self.rows)
        if len(P) != len(shares):
            remedy = f"there are {len(shares)} servers"
            raise InputError("averager", f"a {len(P)} x {len(P)} matrix", remedy)
        moved = P @ shares - shares
        if not np.allclose(moved, 0, atol=CLOSE):
            shown = ", ".join(f"{share:.4g}" for share in shares)
            remedy = (
                "moves the weighted mean: P m-tilde = m-tilde must hold, with the clusters' shares "
                f"of the data m-tilde = ({shown})"
            )
            raise InputError("averager", P.tolist(), remedy)
        for a, b in zip(*np.nonzero(P), strict=True):
            if a != b and not graph.has_edge(int(a), int(b)):
                remedy = f"p[{a}, {b}] uses a link that the graph lacks"
                raise InputError("averager", float(P[a, b]), remedy)
        # What is off by rounding is put right: the mean stays to the last digits.
        P = P - np.diag(P.sum(axis=0) - 1)
        mean = np.outer(shares, np.ones(len(shares)))
        contraction = weighted_norm(np.linalg.matrix_power(P, alpha) - mean, shares)
        if contraction > 1 + CLOSE:
            remedy = f"enlarges disagreement {contraction:.4g}-fold: the servers would drift apart"
            raise InputError("averager", P.tolist(), remedy)
        return Averager(
            "matrix",
            "neighbours",
            shares,
            np.eye(len(P)) - P,
            (1.0,) * alpha,
            0.0 if contraction < 1e-12 else min(contraction, 1.0),
            float(alpha),
            takes_alpha=True,
        )
