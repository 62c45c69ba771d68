"""pfl-research: its simulated backend; `torchrun` starts it once for each core."""

from __future__ import annotations

import os

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it
from workload import BATCH, RATE, Rounds, arguments, data, network


class Model(nn.Module):
    """A network with its loss, as pfl asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def loss(self, images: Tensor, labels: Tensor, is_eval: bool = False) -> Tensor:
        self.eval() if is_eval else self.train()
        return F.cross_entropy(self.body(images), labels)

    def metrics(self, *_: object, **__: object) -> dict[str, object]:
        return {}


class Notes(TrainingProcessCallback):
    """Notes the end of every round."""

    def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
        notes.ended()
        return False, Metrics()


if __name__ == "__main__":
    torch.set_num_threads(max(1, 2 // int(os.environ.get("WORLD_SIZE", "1"))))
    chosen, notes = arguments(), Rounds()
    pairs = data(chosen.clients, chosen.samples)
    users = FederatedDataset(
        lambda user: PyTorchTensorDataset(pairs[user]),
        get_user_sampler("minimize_reuse", list(range(chosen.clients))),
    )
    model = Model()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=chosen.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=chosen.clients,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=PyTorchModel(
            model, torch.optim.SGD, central_optimizer=torch.optim.SGD(model.parameters(), 1.0)
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Notes()],
    )
    if os.environ.get("RANK", "0") == "0":
        notes.report()
