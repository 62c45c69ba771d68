"""From an ordinary `nn.Module` to a chain of plain operations, by torch.fx.

Only what is certain to mean the same is let through: exact types from `torch.nn`, no hooks, no
weights shared or frozen, each operation reading the one before it. The rest is `Unsupported`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.nn import functional

from .errors import Unsupported

__all__ = [
    "Activation",
    "AveragePool",
    "Conv",
    "Flatten",
    "Linear",
    "MaxPool",
    "Op",
    "Pair",
    "trace",
]

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
_FUNCTIONS: dict[Any, Callable[..., Op | None]] = {
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
_METHODS: dict[str, Callable[..., Op | None]] = {
    "relu": _plain("RELU"),
    "relu_": _plain("RELU"),
    "tanh": _plain("TANH"),
    "sigmoid": _plain("SIGMOID"),
    "flatten": _flatten,
    "contiguous": lambda: None,
}
_MODULES: dict[type[nn.Module], Callable[[Any], Op | None]] = {
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


def _is_batch(value: Any, before: torch.fx.Node) -> bool:
    """`x.size(0)` or `x.shape[0]`, written to keep the batch where it is."""
    if not isinstance(value, torch.fx.Node) or value.op not in ("call_method", "call_function"):
        return False
    if value.target == "size":
        return value.args == (before, 0)
    if value.target is operator.getitem and value.args[1] == 0:
        shape = value.args[0]
        return isinstance(shape, torch.fx.Node) and (
            (shape.target == "size" and shape.args == (before,))
            or (shape.target is getattr and shape.args == (before, "shape"))
        )
    return False


def _view(before: torch.fx.Node, sizes: tuple[Any, ...]) -> Flatten:
    sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
    if len(sizes) == 2:
        batch, features = sizes
        if _is_batch(batch, before) and isinstance(features, int):
            return Flatten(None if features == -1 else features)
        if batch == -1 and isinstance(features, int) and features > 0:
            return Flatten(features)
    raise Unsupported(f"view or reshape to {sizes}: only (batch, features) is supported")


def _op(node: torch.fx.Node, before: torch.fx.Node, modules: dict[str, nn.Module]) -> Op | None:
    if not node.args or node.args[0] is not before:
        raise Unsupported(f"{node.name}: the layers are not a simple chain")
    rest, named = node.args[1:], dict(node.kwargs)
    if node.op == "call_module":
        module = modules[str(node.target)]
        make = _MODULES.get(type(module))
        if make is None:
            raise Unsupported(f"layer {node.target} ({type(module).__name__}) is not supported")
        if rest or named:
            raise Unsupported(f"{node.target}: called with more than its input")
        return make(module)
    if node.op == "call_method" and node.target in ("view", "reshape"):
        return _view(before, rest)
    found = _METHODS.get(str(node.target)) if node.op == "call_method" else None
    if node.op == "call_function":
        found = _FUNCTIONS.get(node.target)
    if found is None:
        name = getattr(node.target, "__name__", node.target)
        raise Unsupported(f"operation {name} ({node.op}) is not supported")
    if any(isinstance(value, torch.fx.Node) for value in (*rest, *named.values())):
        raise Unsupported(f"{node.name}: the layers are not a simple chain")
    try:
        return found(*rest, **named)
    except (TypeError, IndexError) as error:
        raise Unsupported(f"{node.name}: {error}") from None


def _about_sizes(node: torch.fx.Node) -> bool:
    return (
        node.target == "size"
        or node.target is getattr
        or (node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node))
    )


def _check_modules(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if any(True for _ in part.buffers(recurse=False)):
            raise Unsupported(f"{type(part).__name__} {name!r} keeps buffers: not supported")
        hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks)
        if any(hooks) or part._backward_pre_hooks:
            raise Unsupported(f"{type(part).__name__} {name!r} has hooks: not supported")
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            raise Unsupported(f"parameter {name} is frozen: not supported")


def trace(module: nn.Module) -> list[Op]:
    """The operations of `module.forward`, in order."""
    _check_modules(module)
    root = module if type(module) not in _MODULES else nn.Sequential(module)
    try:
        graph = torch.fx.Tracer().trace(root)
    except Exception as error:  # a user's forward may raise anything when traced
        raise Unsupported(f"torch.fx cannot trace the network: {error}") from None
    modules = dict(root.named_modules())
    ops: list[Op] = []
    before: torch.fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if before is not None:
                raise Unsupported("the network takes more than one input")
            before = node
        elif node.op == "output":
            if node.args[0] is not before:
                raise Unsupported("the network returns something else than its last layer")
        elif not _about_sizes(node):
            if before is None:
                raise Unsupported("the network takes no input")
            op = _op(node, before, modules)
            if op is not None:
                ops.append(op)
            before = node
    weights = [id(op.module) for op in ops if isinstance(op, Conv | Linear)]
    if len(set(weights)) < len(weights):
        raise Unsupported("a layer with weights is used twice")
    return ops
