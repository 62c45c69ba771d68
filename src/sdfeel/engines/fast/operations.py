"""The operations of the fast engine, and the modules and functions of torch that mean each."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .errors import Unsupported

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    kernel: Pair
    step: Pair
    pad: Pair


@dataclass(frozen=True)
class Conv(Window):
    module: nn.Conv2d


@dataclass(frozen=True)
class Linear:
    module: nn.Linear


@dataclass(frozen=True)
class Depthwise(Window):
    """A convolution of each channel by itself."""

    module: nn.Conv2d


@dataclass(frozen=True)
class Norm:
    """Group or layer normalisation: channels in groups; of an `inner` shape every element has its
    own weight.
    """

    module: nn.GroupNorm | nn.LayerNorm
    groups: int
    channels: int = 0  # of a group normalisation
    inner: tuple[int, ...] = ()  # of a layer normalisation


class MaxPool(Window):
    pass


class AveragePool(Window):
    pass


@dataclass(frozen=True)
class AdaptivePool:
    outputs: tuple[int | None, int | None]


@dataclass(frozen=True)
class Activation:
    kind: str
    slope: float = 0.0


@dataclass(frozen=True)
class Dropout:
    """Drop a part of the elements in training, or of the channels of an image."""

    part: float
    of_channels: bool = False


@dataclass(frozen=True)
class Flatten:
    features: int | None = None  # what the user says comes out, where the user says it


@dataclass(frozen=True)
class Squeeze:
    """One number for a sample instead of a vector of one."""


@dataclass(frozen=True)
class Add:
    """The sum of two activations of one shape."""


Weighted = Conv | Linear | Depthwise | Norm
Op = (
    Weighted | Add | MaxPool | AveragePool | AdaptivePool | Activation | Dropout | Flatten | Squeeze
)


def _pair(value: Any) -> Pair:
    if isinstance(value, int):
        return value, value
    a, b = value if len(value) == 2 else (value[0], value[0])
    return int(a), int(b)


def _conv(m: nn.Conv2d) -> Conv | Depthwise:
    depthwise = m.groups == m.in_channels == m.out_channels and m.groups > 1
    if (m.groups != 1 and not depthwise) or _pair(m.dilation) != (1, 1):
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
    return (Depthwise if depthwise else Conv)(kernel, _pair(m.stride), pad, m)


def _group_norm(m: nn.GroupNorm) -> Norm:
    return Norm(m, m.num_groups, channels=m.num_channels)


def _layer_norm(m: nn.LayerNorm) -> Norm:
    return Norm(m, 1, inner=tuple(m.normalized_shape))


# Functions, operators and methods that add two activations.
ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")


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


def _adaptive(output_size: Any) -> AdaptivePool:
    out = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    return AdaptivePool((out[0], out[1]))


def _flatten(start_dim: int = 0, end_dim: int = -1) -> Flatten:
    if start_dim != 1 or end_dim != -1:
        raise Unsupported(f"flatten({start_dim}, {end_dim}): only flatten(1) is supported")
    return Flatten()


def _squeeze(dim: Any = None) -> Squeeze:
    if dim not in (1, -1):
        raise Unsupported(f"squeeze({dim}): only squeeze(1) and squeeze(-1) are supported")
    return Squeeze()


def _dropout(
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,  # noqa: ARG001
) -> Dropout | None:
    if p >= 1:
        raise Unsupported(f"dropout of everything (p = {p}) is not supported")
    return Dropout(p) if training and p > 0 else None


def _dropout_of_channels(
    p: float = 0.5, training: bool = True, inplace: bool = False
) -> Dropout | None:
    dropout = _dropout(p, training, inplace)
    return dropout and Dropout(dropout.part, of_channels=True)


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


def _nothing() -> None:
    """Leave a tensor as it is."""


# What a function, a method of a tensor or a module of a network's `forward` means. A function takes
# the arguments that follow the tensor, a module has attributes of the same names.
MEANINGS: tuple[tuple[Callable[..., Op | None], *tuple[Any, ...]], ...] = (
    (_plain("RELU"), functional.relu, torch.relu, "relu", "relu_", nn.ReLU),
    (_plain("TANH"), functional.tanh, torch.tanh, "tanh", nn.Tanh),
    (_plain("SIGMOID"), functional.sigmoid, torch.sigmoid, "sigmoid", nn.Sigmoid),
    (_plain("SILU"), functional.silu, nn.SiLU),
    (_gelu, functional.gelu, nn.GELU),
    (_plain("RELU6"), functional.relu6, nn.ReLU6),
    (_leaky, functional.leaky_relu, nn.LeakyReLU),
    (_elu, functional.elu, nn.ELU),
    (_dropout, functional.dropout, nn.Dropout),
    (_dropout_of_channels, functional.dropout2d, nn.Dropout2d),
    (_max_pool, functional.max_pool2d, torch.max_pool2d, nn.MaxPool2d),
    (_average_pool, functional.avg_pool2d, nn.AvgPool2d),
    (_adaptive, functional.adaptive_avg_pool2d, nn.AdaptiveAvgPool2d),
    (_flatten, torch.flatten, "flatten", nn.Flatten),
    (_squeeze, torch.squeeze, "squeeze"),
    (_nothing, "contiguous", nn.Identity),
)


def _from_module(make: Callable[..., Op | None], module: nn.Module) -> Op | None:
    attributes, names = vars(module), inspect.signature(make).parameters
    return make(**{name: attributes[name] for name in names if name in attributes})


FUNCTIONS = {key: make for make, *keys in MEANINGS for key in keys if not isinstance(key, type)}
MODULES: dict[type[nn.Module], Callable[[Any], Op | None]] = {
    nn.Conv2d: _conv,
    nn.Linear: Linear,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    **{
        key: partial(_from_module, make)
        for make, *keys in MEANINGS
        for key in keys
        if isinstance(key, type)
    },
}
