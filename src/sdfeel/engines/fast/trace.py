"""From an ordinary `nn.Module` to a chain of plain operations, by torch.fx.

Only what is certain to mean the same is let through: exact types from `torch.nn`, no hooks, no
weights shared or frozen, each operation reading the one before it. The rest is `Unsupported`.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx
from torch import nn

from .errors import Unsupported
from .operations import FUNCTIONS, MODULES, Conv, Flatten, Linear, Op


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
        make = MODULES.get(type(module))
        if make is None:
            raise Unsupported(f"layer {node.target} ({type(module).__name__}) is not supported")
        if rest or named:
            raise Unsupported(f"{node.target}: called with more than its input")
        return make(module)
    if node.op == "call_method" and node.target in ("view", "reshape"):
        return _view(before, rest)
    operation = FUNCTIONS.get(node.target)
    if operation is None:
        name = getattr(node.target, "__name__", node.target)
        raise Unsupported(f"operation {name} ({node.op}) is not supported")
    if any(isinstance(value, torch.fx.Node) for value in (*rest, *named.values())):
        raise Unsupported(f"{node.name}: the layers are not a simple chain")
    try:
        return operation(*rest, **named)
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
    root = module if type(module) not in MODULES else nn.Sequential(module)
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
