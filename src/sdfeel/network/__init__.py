"""The network room: who belongs to whom, which edge servers are neighbours, and how they agree."""

from sdfeel.network.averagers import AVERAGERS, Averager, Builder, build_averager, route_of
from sdfeel.network.changing import ChangingNetwork
from sdfeel.network.clusters import Clusters, Shares
from sdfeel.network.graphs import GRAPHS, build_graph, read_graph
from sdfeel.network.matrix import MatrixAverager
from sdfeel.network.mixing import (
    MixingMatrix,
    Spectrum,
    metropolis_matrix,
    paper_mixing,
    spectrum,
    weighted_norm,
)
from sdfeel.network.network import Network

__all__ = [
    "AVERAGERS",
    "GRAPHS",
    "Averager",
    "Builder",
    "ChangingNetwork",
    "Clusters",
    "MatrixAverager",
    "MixingMatrix",
    "Network",
    "Shares",
    "Spectrum",
    "build_averager",
    "build_graph",
    "metropolis_matrix",
    "paper_mixing",
    "read_graph",
    "route_of",
    "spectrum",
    "weighted_norm",
]
