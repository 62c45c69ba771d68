"""An optimizer of your own: momentum, as if sdfeel had none, in every engine."""

from dataclasses import dataclass

import torch
from torch.utils.data import TensorDataset

import sdfeel


@dataclass(frozen=True)
class HeavyBall(sdfeel.Optimizer):
    """v <- beta v + g;  w <- w - eta v, with v new in every upload period."""

    beta: float = 0.9
    keeps = {"velocity": sdfeel.Row()}

    def gradient(self, g, w, rows, step):
        return rows["velocity"].mul_(self.beta).add_(g)

    @property
    def affine(self):  # optional: the same in numbers, for compiled code
        return sdfeel.Affine(momentum=self.beta)


def main() -> None:
    points = torch.randn(20, 40, 8, generator=torch.Generator().manual_seed(0))
    targets = (points.sum(dim=2) > 0).long()
    data = [TensorDataset(x, y) for x, y in zip(points, targets, strict=True)]
    network = sdfeel.Network.ring(servers=4, clients_per_server=5)
    model = torch.nn.Linear(8, 2)
    for optimizer in (sdfeel.SGD(), HeavyBall(0.9)):
        for engine in ("reference", "loop", "vectorised", "fast"):
            own = {"network": network, "optimizer": optimizer, "engine": engine, "lr": 0.05}
            result = sdfeel.train(model, data, steps=60, profile="counted", **own)
            name, loss = type(optimizer).__name__, result.history["train_loss"].iloc[-1]
            print(f"{name:10} {engine:10} loss {loss:.4f}")


main()
