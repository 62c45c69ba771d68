"""From an ordinary `nn.Module` to a list of plain operations, by torch.fx.

Only what is certain to mean the same is let through: exact types from `torch.nn`, no hooks, no
weights shared or frozen. The rest is `Unsupported`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import nn

from .errors import Unsupported
from .operations import ADDITIONS, FUNCTIONS, MODULES, Add, Dropout, Flatten, Op, Weighted


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
        raise Unsupported(f"{node.name}: it reads more than one activation")
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


@dataclass(frozen=True)
class Step:
    """An operation and the values that it reads: 0 is the input, n + 1 what step n gives."""

    op: Op
    reads: tuple[int, ...]


def trace(module: nn.Module) -> list[Step]:
    """The operations of `module.forward` in training, in order; the last gives the outputs.

    In evaluation it must do the same, but for dropout.
    """
    _check_modules(module)
    modes = {part: part.training for part in module.modules()}
    try:
        steps, others = _steps(module.train()), _steps(module.eval())
    finally:
        for part, mode in modes.items():
            part.training = mode
    if any(isinstance(step.op, Dropout) for step in others):
        raise Unsupported("dropout that goes on in evaluation (training=True) is not supported")
    if [s.op for s in steps if not isinstance(s.op, Dropout)] != [s.op for s in others]:
        raise Unsupported("forward does something else in evaluation")
    return steps


def _steps(module: nn.Module) -> list[Step]:
    root = module if type(module) not in MODULES else nn.Sequential(module)
    try:
        graph = torch.fx.Tracer().trace(root)
    except Exception as error:  # a user's forward may raise anything when traced
        raise Unsupported(f"torch.fx cannot trace the network: {error}") from None
    modules = dict(root.named_modules())
    steps: list[Step] = []
    value_of: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            if value_of:
                raise Unsupported("the network takes more than one input")
            value_of[node] = 0
        elif node.op == "output":
            _check_output(node, steps, value_of)
        elif not _about_sizes(node):
            op, reads = _step(node, value_of, modules)
            if op is None:
                value_of[node] = reads[0]
                continue
            steps.append(Step(op, reads))
            value_of[node] = len(steps)
    weights = [id(step.op.module) for step in steps if isinstance(step.op, Weighted)]
    if len(set(weights)) < len(weights):
        raise Unsupported("a layer with weights is used twice")
    return steps


def _step(
    node: torch.fx.Node, value_of: dict[torch.fx.Node, int], modules: dict[str, nn.Module]
) -> tuple[Op | None, tuple[int, ...]]:
    """Return an operation, None for one that does nothing, and what it reads."""
    reads = [value_of[v] for v in node.args[:2] if isinstance(v, torch.fx.Node) and v in value_of]
    if node.op != "call_module" and node.target in ADDITIONS:
        if len(node.args) != 2 or node.kwargs or len(reads) != 2:
            raise Unsupported(f"{node.name}: only two activations can be added")
        return Add(), (reads[0], reads[1])
    if not node.args or not isinstance(before := node.args[0], torch.fx.Node):
        raise Unsupported(f"operation {node.name} ({node.op}) is not supported")
    if before not in value_of:
        raise Unsupported(f"{node.name}: what it reads is no activation")
    return _op(node, before, modules), (value_of[before],)


def _check_output(
    node: torch.fx.Node, steps: list[Step], value_of: dict[torch.fx.Node, int]
) -> None:
    """Raise Unsupported unless the last step is what comes out, and every other one is read."""
    given = node.args[0]
    if not isinstance(given, torch.fx.Node) or value_of.get(given) != len(steps):
        raise Unsupported("the network returns something else than its last layer")
    unread = set(range(1, len(steps))) - {value for step in steps for value in step.reads}
    if unread:
        raise Unsupported(f"nothing reads what {steps[min(unread) - 1].op} gives")
