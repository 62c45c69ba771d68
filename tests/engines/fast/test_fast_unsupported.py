"""What the engine cannot do is refused in one line that says why."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from sdfeel.engines.fast import Unsupported, compile_model


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) + x


class Shifted(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) + 1


class Elsewhere(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        torch.relu(y)
        return y


class Branching(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) if x.sum() > 0 else x


class Twice(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.fc(x)))


def frozen() -> nn.Module:
    module = nn.Linear(4, 4)
    module.bias.requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].register_forward_hook(lambda *_: None)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    return module


CASES = [
    (Shifted(), (4,), "only two activations"),
    (Elsewhere(), (4,), "something else than its last layer"),
    (Branching(), (4,), "torch.fx cannot trace"),
    (Twice(), (4,), "used twice"),
    (frozen(), (4,), "bias is frozen"),
    (hooked(), (4,), "hooks"),
    (tied(), (4,), "not a parameter of its own"),
    (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), (4,), "BatchNorm1d .* buffers"),
    (nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)), (4,), "Softmax.* not supported"),
    (nn.Sequential(nn.Conv2d(4, 4, 1, groups=2), nn.Flatten()), (4, 1, 1), "groups"),
    (nn.Sequential(nn.Conv2d(2, 2, 9), nn.Flatten()), (2, 3, 3), "does not fit"),
    (nn.Sequential(nn.Conv2d(1, 1, 1)), (1, 3, 3), "must end in a vector"),
    (nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Flatten()), (1, 3, 3), "ceil_mode"),
    (nn.Linear(5, 4), (4,), "gets 4 features"),
    (nn.ReLU(), (4,), "no layer with weights"),
    (nn.Linear(4, 4), (3, 4), "neither vectors nor images"),
]


@pytest.mark.parametrize(("module", "shape", "reason"), CASES)
def test_the_reason_is_named(module: nn.Module, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason) as caught:
        compile_model(module, "cross-entropy", shape)
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(
    "loss",
    [
        functional.gaussian_nll_loss,
        "hinge",
        nn.MSELoss(reduction="sum"),
        lambda a, b: (a - b).sum(),
    ],
)
def test_other_losses(loss: object) -> None:
    with pytest.raises(Unsupported):
        compile_model(nn.Linear(4, 4), loss, (4,))


@pytest.mark.parametrize(
    "loss", [functional.cross_entropy, nn.CrossEntropyLoss(), functional.mse_loss, nn.MSELoss()]
)
def test_losses_of_torch_as_they_come(loss: object) -> None:
    compile_model(nn.Linear(4, 4), loss, (4,), optimise="-O1")


def test_other_precisions() -> None:
    with pytest.raises(Unsupported, match="float16"):
        compile_model(nn.Linear(4, 4), "mse", (4,), torch.float16)
