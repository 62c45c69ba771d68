"""The models room: the paper's networks. Any other `torch.nn.Module` is as welcome."""

from sdfeel.models.flops import count_flops, count_flops_on, layers_flops
from sdfeel.models.networks import (
    MODELS,
    build,
    cifar_cnn,
    logistic_regression,
    mlp,
    mnist_cnn,
    paper_cnn,
)

__all__ = [
    "MODELS",
    "build",
    "cifar_cnn",
    "count_flops",
    "count_flops_on",
    "layers_flops",
    "logistic_regression",
    "mlp",
    "mnist_cnn",
    "paper_cnn",
]
