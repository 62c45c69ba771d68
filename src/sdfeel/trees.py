"""Nested structures of tensors, taken as one: what a model takes and gives.

A tree is a tensor, or a tuple, list, dict or dataclass of trees. The tensors of a tree have their
samples along the first dimension, as many in each.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Tree", "called", "cut", "joined", "leaves", "mapped", "rows", "spread"]

Tree = Any


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in its order."""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for branch in _branches(tree) for leaf in leaves(branch)]


def mapped(change: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """The same structure with `change` of every tensor, and of those at its place in `others`.

    What is neither a tensor nor a structure, such as None, stays as it is.
    """
    if isinstance(tree, Tensor):
        return change(tree, *others)
    if isinstance(tree, MutableMapping):
        found = copy.copy(tree)  # its own kind: a model's output may have attributes as well
        for key in tree:
            found[key] = mapped(change, tree[key], *(other[key] for other in others))
        return found
    if isinstance(tree, tuple | list):
        values = [mapped(change, *branches) for branches in zip(tree, *others, strict=True)]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        return dataclasses.replace(
            tree, **{n: mapped(change, *(getattr(t, n) for t in (tree, *others))) for n in names}
        )
    return tree


def joined(trees: list[Tree]) -> Tree:
    """Trees of one structure, their samples one after the other."""
    if len(trees) == 1:
        return trees[0]
    return mapped(lambda *parts: torch.cat(parts), *trees)


def rows(tree: Tree) -> int:
    """How many samples a tree has."""
    found = leaves(tree)
    return len(found[0]) if found and found[0].ndim else 0


def cut(tree: Tree, size: int) -> Iterator[Tree]:
    """Pieces of at most so many samples."""
    for start in range(0, max(rows(tree), 1), size):
        part = slice(start, start + size)
        yield mapped(lambda tensor, part=part: tensor[part], tree)


def spread(module: nn.Module, inputs: Tree) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
    """The arguments by which a module takes inputs.

    A tuple or list goes to forward(a, b) as arguments where it takes so many, a dict by name where
    it has those names; everything else is its one argument.
    """
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    takes = inspect.signature(module.forward)
    if isinstance(inputs, tuple | list) and len(inputs) > 1 and _binds(takes, *inputs):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping) and _binds(takes, **inputs):
        return (), dict(inputs)
    return (inputs,), {}


def called(module: nn.Module, inputs: Tree) -> Tree:
    """The module's outputs."""
    arguments, named = spread(module, inputs)
    return module(*arguments, **named)


def _binds(signature: inspect.Signature, *arguments: Tree, **named: Tree) -> bool:
    try:
        signature.bind(*arguments, **named)
    except TypeError:
        return False
    return True


def _branches(tree: Tree) -> list[Tree]:
    if isinstance(tree, Mapping):
        return list(tree.values())
    if isinstance(tree, tuple | list):
        return list(tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [getattr(tree, field.name) for field in dataclasses.fields(tree)]
    return []
