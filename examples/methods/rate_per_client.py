"""A rate for each cluster or client: a client's gradients are scaled by a factor of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sdfeel import Method


@dataclass(frozen=True)
class RatePerClient(Method):
    """With SGD and momentum this is a learning rate of lr times the client's factor."""

    factors: Sequence[float]

    def gradient(self, g, w, rows, step):
        factors = torch.tensor(self.factors)[torch.from_numpy(step.clients)]
        return g * factors[:, None].to(g)


def by_cluster(clusters, factors):
    """The factor of each client's cluster."""
    of_client = {client: f for own, f in zip(clusters, factors, strict=True) for client in own}
    return RatePerClient(tuple(of_client[client] for client in sorted(of_client)))
