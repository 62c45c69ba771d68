"""A local rule of your own: momentum, as if sdfeel had none, in every engine."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.utils.data import TensorDataset

import sdfeel


@dataclass(frozen=True)
class HeavyBall(sdfeel.LocalRule):
    """v <- beta v + g;  w <- w - eta v, with v new in every upload period."""

    beta: float = 0.9
    keeps: ClassVar[tuple[str, ...]] = ("velocity",)

    def step(self, w, g, kept, eta):
        w.sub_(kept["velocity"].mul_(self.beta).add_(g), alpha=eta)

    @property
    def affine(self):  # optional: the same in numbers, for compiled code
        return sdfeel.Affine(momentum=self.beta)


def main() -> None:
    points = torch.randn(20, 40, 8, generator=torch.Generator().manual_seed(0))
    targets = (points.sum(dim=2) > 0).long()
    data = [TensorDataset(x, y) for x, y in zip(points, targets, strict=True)]
    network = sdfeel.Network.ring(servers=4, clients_per_server=5)
    model = torch.nn.Linear(8, 2)
    for rule in ("sgd", HeavyBall(0.9)):
        for engine in ("reference", "loop", "vectorised", "fast"):
            own = {"network": network, "local": rule, "engine": engine, "steps": 60, "lr": 0.05}
            result = sdfeel.train(model, data, profile="counted", **own)
            print(f"{rule!s:70} {engine:10} loss {result.history['train_loss'].iloc[-1]:.4f}")


main()
