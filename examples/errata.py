"""Where the paper is wrong: a small counterexample for each statement, computed here.

python examples/errata.py
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch

import sdfeel
from sdfeel.algorithm.costs import round_cost
from sdfeel.models import build, count_flops
from sdfeel.simulation.settings import Settings

UNEQUAL = [5, 1, 3]  # samples of three clusters


def unequal(graph: str) -> sdfeel.Network:
    return sdfeel.Network.build(graph, 3, 1).with_samples(UNEQUAL)


def mixing() -> None:
    network = unequal("path")
    P, shares = network.averager("paper", 1).operator, network.shares.cluster
    print("P is doubly stochastic (Lemma 3): its columns sum to", P.sum(axis=0).round(3).tolist())
    print("  but its rows to", P.sum(axis=1).round(3).tolist())
    print("  and its entries go down to", P.min().round(3))
    distance = P - np.outer(shares, np.ones(3))
    print("|| P - M ||_op = zeta (Lemma on H): zeta is", round(network.zeta, 4))
    print("  the operator norm is", round(float(np.linalg.norm(distance, 2)), 4))
    root = np.sqrt(shares)
    weighted = np.linalg.norm(distance / root[:, None] * root, 2)
    print("  the norm weighted by the clusters' shares is", round(float(weighted), 4))
    print("zeta = 0 for a full graph: here it is", round(unequal("full").zeta, 4))


def network_and_clock() -> None:
    for shape in ((1, 28, 28), (3, 32, 32)):
        model = build("mnist-cnn" if shape[0] == 1 else "cifar-cnn", shape, 10, 0)
        flops = count_flops(model, shape, 10) / 1e6
        print(f"138.4 MFLOPs an iteration: on {shape} a batch of ten takes {flops:.1f}")
    convolutions = 3 * 10 * 25 + 10 + 10 * 20 * 25 + 20
    dense = 20 * 5 * 5 * 50 + 50 + 50 * 10 + 10
    print("21,840 parameters on CIFAR-10: the same layout has", f"{convolutions + dense:,}")
    algorithm = Settings.of({"schedule": sdfeel.Schedule(4, 2, 1)}).algorithm(
        sdfeel.Network.ring(10, 5), sdfeel.load_profile("paper"), 21_840
    )
    (*_, last) = algorithm.events(12)  # K = 12 is one round of 8 and half of the next
    formula = math.ceil(12 / 8) * round_cost(algorithm).total
    print(f"latency of K = 12, tau1 tau2 = 8: ceil(K / 8) rounds are {formula:.3f} s")
    print(f"  what happens takes {last.ends:.3f} s: the second exchange never comes")


def algorithm_1() -> None:
    """Two clients, f_i(w) = (w - c_i)^2 / 2, tau1 = 2: models are averaged after update 2."""
    targets, rate = np.array([0.0, 1.0]), 0.1
    data = [(np.ones((1, 1)), np.array([[c]])) for c in targets]
    model = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    result = sdfeel.train(
        model, data, network=sdfeel.Network.build("path", 1, 2), steps=2, lr=rate,
        schedule=sdfeel.Schedule(2, 1, 1), loss=lambda out, y: ((out - y) ** 2).mean() / 2,
        engine="reference", profile="counted",
    )  # fmt: skip
    w = np.zeros(2)
    by_lemma = w.copy()
    for k in (1, 2):
        w = w - rate * (w - targets)
        by_lemma = by_lemma - rate * (by_lemma - targets)
        w = np.full(2, w.mean()) if k % 2 == 0 else w  # T_{k+1}
        by_lemma = np.full(2, by_lemma.mean()) if (k - 1) % 2 == 0 else by_lemma  # T_k, T_0 = V B
    print("W_{k+1} = (W_k - eta G_k) T_k (Lemma 1) gives clients", by_lemma.round(4).tolist())
    print("  Algorithm 1 gives", w.round(4).tolist())
    print("  sdfeel gives", round(result.model.weight.item(), 4))


def figure_3() -> None:
    digits = sdfeel.data.load("mnist-5k")
    model = build("logistic", (1, 28, 28), 10, 0)
    ends = {}
    for scheme in ("hierfavg", "fedavg"):
        result = sdfeel.train(
            model, (digits.train_inputs, digits.train_targets), partition="dirichlet",
            network=sdfeel.Network.ring(10, 5), steps=20, scheme=scheme, engine="reference",
            schedule=sdfeel.Schedule(2, 1, 5), profile="paper",
        )  # fmt: skip
        ends[scheme] = result.history.iloc[-1]
    loss = abs(ends["hierfavg"]["train_loss"] - ends["fedavg"]["train_loss"])
    print("FedAvg lags far behind HierFAVG at tau2 = 1: their losses differ by", f"{loss:.1e}")
    seconds = [round(float(end["seconds"]), 3) for end in ends.values()]
    print("  and both take the same time, in seconds:", seconds)


def main() -> None:
    warnings.simplefilter("ignore")
    for statements in (mixing, network_and_clock, algorithm_1, figure_3):
        statements()


if __name__ == "__main__":
    main()
