"""The constants of Theorem 1, measured on a model and clients' data.

Assumption 1 asks for suprema over all of R^M. Nobody can measure those; what is measured here are
values at the models that training visits, each with its spread over them (and over the clients
where that is what differs), and with the words that say what it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.data import ClientData
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.theory.bound import Constants
from sdfeel.theory.split import KappaSplit, kappa_split

Loss = Callable[[Tensor, Tensor], Tensor]
Progress = Callable[[int, int, str], None]

BATCHES = 2  # mini-batches per client for sigma^2
CURVED = 5  # clients whose Hessian is looked at
POWER_STEPS = 10


@dataclass(frozen=True)
class Estimate:
    """A measured number, the range over which it varied, and what it is."""

    value: float
    low: float
    high: float
    words: str

    @classmethod
    def of(cls, values: Sequence[float], words: str, value: float | None = None) -> Estimate:
        """The mean of `values`, or another summary of them, with their range."""
        mean = float(np.mean(values)) if value is None else value
        return cls(mean, float(np.min(values)), float(np.max(values)), words)


@dataclass(frozen=True)
class MeasuredConstants:
    """All constants of Theorem 1, with kappa^2 in its two parts."""

    smoothness: Estimate
    variance: Estimate
    inside: Estimate
    between: Estimate
    largest_non_iid: Estimate
    gap: Estimate

    def constants(self, worst: bool = False) -> Constants:
        """Return the constants for the calculator; `worst` takes the largest client's kappa^2."""
        non_iid = self.inside.value + self.between.value
        if worst:
            non_iid = self.largest_non_iid.high
        return Constants(self.smoothness.value, self.variance.value, non_iid, self.gap.value)


def measure(
    models: Sequence[nn.Module],
    data: ClientData,
    network: Network,
    *,
    loss: Loss = F.cross_entropy,
    batch_size: int = 10,
    seed: int = 0,
    samples: int = 100,
    progress: Progress = lambda *_: None,
) -> MeasuredConstants:
    """Measure at every model of `models`, in the order in which training visited them.

    The first one is the start, from which Delta counts. `samples` limits how many of a client's
    samples its gradient is taken over; with more than that it is an estimate.
    """
    if not models:
        raise InputError("models", [], "at least one: the start of the training")
    probe = Probe(models[0], data, network, loss=loss, samples=samples, seed=seed)
    splits, variances, curvatures, losses = [], [], [], []
    for number, model in enumerate(models):
        probe.load(model)
        progress(4 * number, 4 * len(models), "gradients")
        losses.append(probe.loss())
        gradients = probe.client_gradients()
        splits.append(kappa_split(gradients, probe.network.shares))
        progress(4 * number + 2, 4 * len(models), "mini-batch noise")
        variances.append(probe.variance(gradients, batch_size))
        progress(4 * number + 3, 4 * len(models), "curvature")
        curvatures += probe.curvatures()
    progress(4 * len(models), 4 * len(models), "done")
    return _summary(splits, variances, curvatures, losses)


def _summary(
    splits: Sequence[KappaSplit],
    variances: Sequence[float],
    curvatures: Sequence[float],
    losses: Sequence[float],
) -> MeasuredConstants:
    path = f"at {len(splits)} models along the visited path, not a supremum"
    return MeasuredConstants(
        smoothness=Estimate.of(
            curvatures,
            f"largest eigenvalue (in size) of single clients' Hessians {path}",
            value=max(curvatures),
        ),
        variance=Estimate.of(variances, f"sigma^2: weighted mean over the clients {path}"),
        inside=Estimate.of(
            [split.inside for split in splits],
            f"kappa^2 inside clusters: weighted mean over the clients {path}",
        ),
        between=Estimate.of(
            [split.between for split in splits],
            f"kappa^2 between clusters: weighted mean over the clusters {path}",
        ),
        largest_non_iid=Estimate.of(
            [split.largest for split in splits], f"kappa^2 of the worst client {path}"
        ),
        gap=Estimate(
            losses[0],
            losses[0] - min(losses),
            losses[0],
            "Delta: at most the loss of the start (for a loss that is never negative), at least "
            "what the path has gained",
        ),
    )


class Probe:
    """Gradients, noise and curvature at one model after the other."""

    def __init__(
        self,
        model: nn.Module,
        data: ClientData,
        network: Network,
        *,
        loss: Loss = F.cross_entropy,
        samples: int = 100,
        seed: int = 0,
    ) -> None:
        self.network = network.with_samples(data.samples)
        self.criterion = loss
        self.rng = np.random.default_rng(seed)
        self.model = copy.deepcopy(model).eval()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.parts = [self._part(data, client, samples) for client in range(data.clients)]

    def load(self, model: nn.Module) -> None:
        """Go to another model of the same kind."""
        self.model.load_state_dict(model.state_dict())

    def loss(self) -> float:
        """F at the model, over the samples that are looked at."""
        with torch.no_grad():
            each = [float(self.criterion(self.model(x), y)) for x, y in self.parts]
        return float(self.network.shares.client @ np.array(each))

    def client_gradients(self) -> NDArray[np.float64]:
        """Grad F_i for every client, one row each."""
        return np.stack([self._gradient(x, y).double().numpy() for x, y in self.parts])

    def variance(self, gradients: NDArray[np.float64], batch_size: int) -> float:
        """sigma^2: weighted mean over the clients of E||g - grad F_i||^2, drawn as in training."""
        noise = np.zeros(len(self.parts))
        for client, (x, y) in enumerate(self.parts):
            if len(x) <= batch_size:
                continue  # a full gradient has no noise
            for _ in range(BATCHES):
                rows = torch.from_numpy(self.rng.choice(len(x), batch_size, replace=False))
                off = self._gradient(x[rows], y[rows]).double().numpy() - gradients[client]
                noise[client] += float(off @ off) / BATCHES
        return float(self.network.shares.client @ noise)

    def curvatures(self) -> list[float]:
        """|lambda|_max of the Hessians of some clients' losses, by power iteration."""
        count = min(CURVED, len(self.parts))
        chosen = self.rng.choice(len(self.parts), count, replace=False)
        return [self._curvature(*self.parts[client]) for client in chosen]

    def _part(self, data: ClientData, client: int, samples: int) -> tuple[Tensor, Tensor]:
        x, y = data.client(client)
        if x.is_floating_point():
            x = x.to(self.parameters[0].dtype)
        if len(x) <= samples:
            return x, y
        rows = torch.from_numpy(np.sort(self.rng.choice(len(x), samples, replace=False)))
        return x[rows], y[rows]

    def _gradient(self, x: Tensor, y: Tensor, create_graph: bool = False) -> Tensor:
        loss = self.criterion(self.model(x), y)
        return _flat(torch.autograd.grad(loss, self.parameters, create_graph=create_graph))

    def _curvature(self, x: Tensor, y: Tensor) -> float:
        gradient = self._gradient(x, y, create_graph=True)
        direction = torch.from_numpy(self.rng.normal(size=len(gradient))).to(gradient.dtype)
        size = 0.0
        for _ in range(POWER_STEPS):
            direction = direction / direction.norm().clamp_min(1e-30)
            product = torch.autograd.grad(
                gradient @ direction, self.parameters, retain_graph=True, materialize_grads=True
            )
            direction = _flat(product)
            size = float(direction.norm())
        return size


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])
