"""Where the paper is wrong: a small counterexample for each statement, computed here.

python examples/errata.py
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import sdfeel

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


def cnn(channels: int, side: int) -> nn.Sequential:
    """Two 5x5 convolutions of 10 and 20 channels, then 50 and 10 outputs."""
    left = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(20 * left**2, 50), nn.ReLU(),
        nn.Linear(50, 10),
    )  # fmt: skip


def network_and_clock() -> None:
    for channels, side in ((1, 28), (3, 32)):
        model = cnn(channels, side)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(10, channels, side, side)).sum().backward()
        size = sum(parameter.numel() for parameter in model.parameters())
        flops = counter.get_total_flops() / 1e6
        print(f"21,840 parameters and 138.4 MFLOPs an iteration, on {channels} x {side} x {side}:")
        print(f"  this layout has {size:,} parameters")
        print(f"  a batch of ten takes, in MFLOPs, {flops:.1f}")
    seconds = {steps: trained("sd-feel", steps)["seconds"] for steps in (8, 12)}
    formula = math.ceil(12 / 8) * seconds[8]
    print(f"latency of K = 12, tau1 tau2 = 8: ceil(K / 8) rounds are {formula:.3f} s")
    print(f"  what happens takes {seconds[12]:.3f} s: the second exchange never comes")


def trained(scheme: str, steps: int, tau1: int = 4, tau2: int = 2) -> dict:
    """How a run of the paper's network on 5,000 MNIST images ends."""
    digits = sdfeel.data.load("mnist-5k")
    torch.manual_seed(0)
    result = sdfeel.train(
        cnn(1, 28), (digits.train_inputs, digits.train_targets), partition="dirichlet",
        network=sdfeel.Network.ring(10, 5), steps=steps, scheme=scheme, engine="vectorised",
        schedule=sdfeel.Schedule(tau1, tau2, 1), profile="paper", train_samples=500,
    )  # fmt: skip
    return result.history.iloc[-1]


def algorithm_1() -> None:
    """Two clients, f_i(w) = (w - c_i)^2 / 2, tau1 = 2: models are averaged after update 2."""
    targets, rate = np.array([0.0, 1.0]), 0.1
    data = [(np.ones((1, 1)), np.array([[c]])) for c in targets]
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
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
    ends = [trained(scheme, 8, tau1=2, tau2=1) for scheme in ("hierfavg", "fedavg")]
    loss = abs(ends[0]["train_loss"] - ends[1]["train_loss"])
    print("FedAvg lags far behind HierFAVG at tau2 = 1: their losses differ by", f"{loss:.1e}")
    seconds = [round(float(end["seconds"]), 3) for end in ends]
    print("  and both take the same time, in seconds:", seconds)


def main() -> None:
    warnings.simplefilter("ignore")
    for statements in (mixing, network_and_clock, algorithm_1, figure_3):
        statements()


if __name__ == "__main__":
    main()
