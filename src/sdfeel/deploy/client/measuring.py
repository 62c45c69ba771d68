"""Losses and metrics with PyTorch: at clients on their own data, at an edge on a holdout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch.nn import functional

from sdfeel.algorithm.trainer import Model
from sdfeel.data import ClientData
from sdfeel.deploy.config import Deployment
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.engines.problem import Loss, placed
from sdfeel.importing import imported
from sdfeel.simulation.evaluation import Metric, usual_metrics
from sdfeel.trees import Tree, called, cut, joined, ready

__all__ = ["Measuring", "evaluator"]


def evaluator(deployment: Deployment, edge: str) -> Callable[[Model], dict[str, float]]:
    """An edge's own look at its model, on samples that no client holds."""
    folder, local = deployment.folder, deployment.local
    module = imported("local.model", local.model, folder)()
    opened = imported("evaluation.holdout", deployment.evaluation.holdout, folder)
    samples = ClientData.from_datasets([opened(edge, **local.options)])
    measuring, layout = Measuring.of(deployment), ParameterLayout.of(module)

    inputs, targets = (
        placed(tree, layout.dtype, torch.device("cpu"))
        for tree in (samples.inputs, samples.targets)
    )

    def evaluate(model: Model) -> dict[str, float]:
        torch.set_num_threads(1)  # clients of this machine have work to do
        layout.load(module, torch.from_numpy(np.array(model)))
        values = measuring(module, inputs, targets)
        return {f"test_{name}": value for name, value in values.items()}

    return evaluate


@dataclasses.dataclass(frozen=True)
class Measuring:
    """The loss and metrics by name; all are means over samples."""

    loss: Loss = functional.cross_entropy
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, deployment: Deployment) -> Measuring:
        local, folder = deployment.local, deployment.folder
        loss_or_class = imported("local.loss", local.loss, folder)
        loss = loss_or_class() if isinstance(loss_or_class, type) else loss_or_class
        if local.metrics is None:
            return cls(loss, usual_metrics(loss, torch.empty(0, dtype=torch.int64)))
        metrics = {
            name: imported(f"local.metrics.{name}", path, folder)
            for name, path in local.metrics.items()
        }
        return cls(loss, metrics)

    def __call__(self, model: torch.nn.Module, inputs: Tree, targets: Tree) -> dict[str, float]:
        model.eval()
        with torch.no_grad():
            outputs = joined([called(model, part) for part in cut(inputs, 500)])
            targets = ready(targets)
            values = {"loss": float(self.loss(outputs, targets))}
            return values | {name: float(m(outputs, targets)) for name, m in self.metrics.items()}
