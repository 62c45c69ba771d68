"""FedLab: its serial trainer and its FedAvg handler."""

from __future__ import annotations

import torch

# FedLab imports torchvision, whose builds for graphics cards miss operators on a processor.
operators = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from fedlab.contrib.algorithm.fedavg import (  # noqa: E402
    FedAvgSerialClientTrainer,
    FedAvgServerHandler,
)
from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from workload import BATCH, RATE, Rounds, arguments, data, network  # noqa: E402


class Clients:
    """Data as FedLab asks for it."""

    def __init__(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self.sets = [TensorDataset(*pair) for pair in pairs]

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader:
        return DataLoader(self.sets[client], batch_size=batch_size, shuffle=True)


if __name__ == "__main__":
    chosen, notes = arguments(), Rounds()
    trainer = FedAvgSerialClientTrainer(network(), chosen.clients)
    trainer.setup_dataset(Clients(data(chosen.clients, chosen.samples)))
    trainer.setup_optim(epochs=1, batch_size=BATCH, lr=RATE)
    handler = FedAvgServerHandler(network(), chosen.rounds, sample_ratio=1.0)
    handler.num_clients = chosen.clients
    while not handler.if_stop:
        trainer.local_process(handler.downlink_package, list(range(chosen.clients)))
        for package in trainer.uplink_package:
            handler.load(package)
        notes.ended()
    notes.report()
