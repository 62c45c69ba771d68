"""An averager as a function that returns a matrix: half of a Metropolis step.

`P[j, d]` is what server d takes of server j's model in one exchange, eq. (5), which is carried out
alpha times. Its columns must sum to 1, and P times the shares m-tilde must be the shares.
"""

import numpy as np


def lazy(graph, shares, alpha):  # noqa: ARG001
    flow = shares / (np.array([graph.degree[d] for d in range(len(shares))]) + 1)
    P = np.zeros((len(shares), len(shares)))
    for a, b in graph.edges():
        both = min(flow[a], flow[b]) / 2
        P[a, b], P[b, a] = both / shares[b], both / shares[a]
    return P + np.diag(1 - P.sum(axis=0))
