"""Seven models that no engine was made for: what "auto" makes of what users bring.

resnet-gn     residual, GroupNorm, 1.1 million parameters     images 3x32x32
resnet18-gn   the same as ResNet-18, 11.2 million
cnn-gn        two convolutions with GroupNorm
lstm          one layer of 104, 57 thousand                   sequences 28x28
lstm-large    two layers of 340, 1.4 million
gru           one layer of 64
transformer   two encoder layers of width 64
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

__all__ = ["LARGE", "LARGE_TAU1", "LAYERS", "ZOO", "ZOO_SHAPES"]


class _Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(8, outs), nn.GroupNorm(8, outs)])
        plain = stride == 1 and ins == outs
        self.short = nn.Identity() if plain else nn.Conv2d(ins, outs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.short(x))


def _resnet(widths: Sequence[int]) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.ReLU()]
    before = widths[0]
    for number, width in enumerate(widths):
        layers += [_Block(before, width, 1 if number == 0 else 2), _Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 10),
    )  # fmt: skip


class _Recurrent(nn.Module):
    """Rows of an image as a sequence; the last output decides."""

    def __init__(self, core: nn.RNNBase) -> None:
        super().__init__()
        self.core, self.head = core, nn.Linear(core.hidden_size, 10)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.core(x)[0][:, -1])
        return outputs


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.embed, self.head = nn.Linear(28, 64), nn.Linear(64, 10)
        self.core = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.core(self.embed(x)).mean(dim=1))
        return outputs


def _resnet8() -> nn.Module:
    """ResNet-8 with group normalisation: three blocks of 16, 32 and 64 channels."""
    widths = (16, 16, 32, 64)
    blocks = [_Block(a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(8, 16), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def _mobile() -> nn.Module:
    """Depthwise and pointwise convolutions, as in MobileNet."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU6()]
    for ins, outs, stride in ((16, 32, 1), (32, 64, 2), (64, 64, 1)):
        layers += [nn.Conv2d(ins, ins, 3, stride, 1, groups=ins), nn.GroupNorm(4, ins), nn.ReLU6()]
        layers += [nn.Conv2d(ins, outs, 1), nn.GroupNorm(4, outs), nn.ReLU6()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def _dropping() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.1),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10),
    )  # fmt: skip


# Models whose layers the fast engine has learned.
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "cnn-gn": _cnn,
    "cnn-dropout": _dropping,
    "resnet8-gn": _resnet8,
    "mobile-gn": _mobile,
}
ZOO: dict[str, Callable[[], nn.Module]] = {
    "resnet-gn": lambda: _resnet((40, 80, 160)),
    "resnet18-gn": lambda: _resnet((64, 128, 256, 512)),
    "lstm": lambda: _Recurrent(nn.LSTM(28, 104, batch_first=True)),
    "lstm-large": lambda: _Recurrent(nn.LSTM(28, 340, num_layers=2, batch_first=True)),
    "cnn-gn": _cnn,
    "transformer": _Transformer,
    "gru": lambda: _Recurrent(nn.GRU(28, 64, batch_first=True)),
}
_IMAGES = ("resnet-gn", "resnet18-gn", "cnn-gn")
ZOO_SHAPES: dict[str, tuple[int, ...]] = {
    name: (3, 32, 32) if name in (*_IMAGES, *LAYERS) else (28, 28) for name in (*ZOO, *LAYERS)
}
# Where a step takes long: so few clients, and the paper's tau1 of figure 3 instead of a longer one.
LARGE = {"resnet-gn": 2, "resnet18-gn": 2, "lstm-large": 4}
LARGE_TAU1 = 2
