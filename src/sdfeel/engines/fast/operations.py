"""The operations that the fast engine knows, and what of torch means each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .errors import Unsupported

Pair = tuple[int, int]


@dataclass(frozen=True)
class Conv:
    module: nn.Conv2d
    kernel: Pair
    step: Pair
    pad: Pair


@dataclass(frozen=True)
class Linear:
    module: nn.Linear


@dataclass(frozen=True)
class MaxPool:
    kernel: Pair
    step: Pair
    pad: Pair


@dataclass(frozen=True)
class AveragePool:
    kernel: Pair | None  # None: an adaptive pool to `outputs`
    step: Pair
    pad: Pair
    outputs: tuple[int | None, int | None] = (1, 1)


@dataclass(frozen=True)
class Activation:
    kind: str
    slope: float = 0.0


@dataclass(frozen=True)
class Flatten:
    features: int | None = None  # what the user says comes out, where the user says it


Op = Conv | Linear | MaxPool | AveragePool | Activation | Flatten


def _pair(value: Any) -> Pair:
    if isinstance(value, int):
        return value, value
    a, b = value if len(value) == 2 else (value[0], value[0])
    return int(a), int(b)


def _conv(m: nn.Conv2d) -> Conv:
    if m.groups != 1 or _pair(m.dilation) != (1, 1):
        raise Unsupported(f"{m}: groups and dilation other than 1 are not supported")
    if m.padding_mode != "zeros":
        raise Unsupported(f"{m}: padding with {m.padding_mode!r} is not supported")
    kernel = _pair(m.kernel_size)
    if m.padding == "valid":
        pad = (0, 0)
    elif m.padding == "same":
        if kernel[0] % 2 == 0 or kernel[1] % 2 == 0:
            raise Unsupported(f"{m}: padding 'same' with an even kernel is not supported")
        pad = (kernel[0] // 2, kernel[1] // 2)
    else:
        pad = _pair(m.padding)
    return Conv(m, kernel, _pair(m.stride), pad)


def _max_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> MaxPool:
    if ceil_mode or return_indices or _pair(dilation) != (1, 1):
        raise Unsupported("max-pooling with ceil_mode, dilation or indices is not supported")
    return MaxPool(_pair(kernel_size), _pair(stride or kernel_size), _pair(padding))


def _average_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> AveragePool:
    pad = _pair(padding)
    if ceil_mode or divisor_override or (not count_include_pad and pad != (0, 0)):
        raise Unsupported("average pooling with ceil_mode or another divisor is not supported")
    return AveragePool(_pair(kernel_size), _pair(stride or kernel_size), pad)


def _adaptive(output_size: Any) -> AveragePool:
    out = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    return AveragePool(None, (1, 1), (0, 0), (out[0], out[1]))


def _flatten(start_dim: int = 0, end_dim: int = -1) -> Flatten:
    if start_dim != 1 or end_dim != -1:
        raise Unsupported(f"flatten({start_dim}, {end_dim}): only flatten(1) is supported")
    return Flatten()


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> None:  # noqa: ARG001
    if training and p > 0:
        raise Unsupported(f"dropout (p = {p}) draws random numbers: not supported")


def _gelu(approximate: str = "none") -> Activation:
    return Activation("GELU" if approximate == "none" else "GELU_TANH")


def _leaky(negative_slope: float = 0.01, inplace: bool = False) -> Activation:  # noqa: ARG001
    return Activation("LEAKY_RELU", negative_slope)


def _elu(alpha: float = 1.0, inplace: bool = False) -> Activation:  # noqa: ARG001
    return Activation("ELU", alpha)


def _plain(kind: str) -> Callable[..., Activation]:
    def make(inplace: bool = False) -> Activation:  # noqa: ARG001
        return Activation(kind)

    return make


# What a call of the network's `forward` means, by function and by name of a tensor's method. Each
# takes the arguments that follow the tensor; None is "nothing happens".
FUNCTIONS: dict[Any, Callable[..., Op | None]] = {
    functional.relu: _plain("RELU"),
    torch.relu: _plain("RELU"),
    torch.tanh: _plain("TANH"),
    functional.tanh: _plain("TANH"),
    torch.sigmoid: _plain("SIGMOID"),
    functional.sigmoid: _plain("SIGMOID"),
    functional.silu: _plain("SILU"),
    functional.gelu: _gelu,
    functional.leaky_relu: _leaky,
    functional.elu: _elu,
    functional.dropout: _dropout,
    functional.dropout2d: _dropout,
    functional.max_pool2d: _max_pool,
    torch.max_pool2d: _max_pool,
    functional.avg_pool2d: _average_pool,
    functional.adaptive_avg_pool2d: _adaptive,
    torch.flatten: _flatten,
}
METHODS: dict[str, Callable[..., Op | None]] = {
    "relu": _plain("RELU"),
    "relu_": _plain("RELU"),
    "tanh": _plain("TANH"),
    "sigmoid": _plain("SIGMOID"),
    "flatten": _flatten,
    "contiguous": lambda: None,
}
MODULES: dict[type[nn.Module], Callable[[Any], Op | None]] = {
    nn.Conv2d: _conv,
    nn.Linear: Linear,
    nn.MaxPool2d: lambda m: _max_pool(
        m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices
    ),
    nn.AvgPool2d: lambda m: _average_pool(
        m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad, m.divisor_override
    ),
    nn.AdaptiveAvgPool2d: lambda m: _adaptive(m.output_size),
    nn.ReLU: lambda _: Activation("RELU"),
    nn.Tanh: lambda _: Activation("TANH"),
    nn.Sigmoid: lambda _: Activation("SIGMOID"),
    nn.SiLU: lambda _: Activation("SILU"),
    nn.GELU: lambda m: _gelu(m.approximate),
    nn.LeakyReLU: lambda m: _leaky(m.negative_slope),
    nn.ELU: lambda m: _elu(m.alpha),
    nn.Dropout: lambda m: _dropout(m.p, m.training),
    nn.Dropout2d: lambda m: _dropout(m.p, m.training),
    nn.Flatten: lambda m: _flatten(m.start_dim, m.end_dim),
    nn.Identity: lambda _: None,
}
