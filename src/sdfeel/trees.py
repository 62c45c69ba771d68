"""Nested structures of tensors, taken as one: what a model takes and gives.

A tree is a tensor, or a tuple, list, dict or dataclass of trees. The tensors of a tree have their
samples along the first dimension, as many in each. `Pixels` are a tree of bytes that become real
numbers when a model is called.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from sdfeel.errors import InputError

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Pixels:
    """Images that stay bytes in memory: p of channel c stands for (p/255 - mean_c) / std_c.

    They are scaled where a batch is taken, so that they take a quarter of the memory of float32.

    values  bytes, (samples, ...); with numbers for each channel (samples, channels, ...)
    mean    of p/255: a number, or one for each channel; so is `std`. As they come: p/255
    dtype   of the real numbers; a run sets it to its model's
    axis    of the channels, counted from the end: the second of `values` as they are given
    """

    values: Any
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    dtype: torch.dtype = torch.float32
    axis: int = 0

    def __post_init__(self) -> None:
        """Arrays become tensors; what cannot be scaled is named."""
        values = torch.as_tensor(self.values)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "axis", self.axis or 1 - values.ndim)
        if values.dtype != torch.uint8 or values.ndim < 2:
            shown = f"{values.dtype} {tuple(values.shape)}"
            raise InputError("pixels", shown, "must be bytes, torch.uint8, of shape (samples, ...)")
        for name in ("mean", "std"):
            given = getattr(self, name)
            if isinstance(given, int | float):
                continue
            given = tuple(float(number) for number in given)
            object.__setattr__(self, name, given)
            channels = values.shape[self.axis]
            if len(given) != channels:
                remedy = f"a number, or one for each of {channels} channels"
                raise InputError(f"{name} of pixels", given, remedy)
        if not all(deviation > 0 for deviation in _numbers(self.std)):
            raise InputError("std of pixels", self.std, "must be above 0")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> torch.Size:
        """(samples, ...)"""
        shape: torch.Size = self.values.shape
        return shape

    @property
    def scale(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel, or of all."""
        mean, std = _numbers(self.mean), _numbers(self.std)
        most = max(len(mean), len(std))
        return mean * (most // len(mean)), std * (most // len(std))

    def real(self) -> Tensor:
        """The numbers that they stand for, by float32: (p - 255 mean) / (255 std)."""
        real: Tensor = self.values.to(torch.float32)
        mean, std = self.scale
        if len(mean) == 1:
            real.sub_(255 * mean[0]).div_(255 * std[0])
        else:
            of_channels = (len(mean), *(1 for _ in range(-self.axis - 1)))
            for numbers, change in ((mean, real.sub_), (std, real.div_)):
                each = torch.tensor([255 * n for n in numbers], device=real.device)
                change(each.view(of_channels))
        return real.to(self.dtype)

    def table(self) -> Tensor:
        """Return what each of the 256 bytes stands for: a row for each channel, or one for all."""
        channels = len(self.scale[0])
        every = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, channels)
        return dataclasses.replace(self, values=every, axis=-1).real().T.contiguous()


def _numbers(given: float | tuple[float, ...]) -> tuple[float, ...]:
    return (float(given),) if isinstance(given, int | float) else given


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in its order."""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for branch in _branches(tree) for leaf in leaves(branch)]


def mapped(change: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return the structure with `change` of every tensor and those at its place in `others`.

    What is neither a tensor nor a structure, such as None, stays as it is.
    """
    return _mapped(change, Tensor, tree, *others)


def _mapped(
    change: Callable[..., Any], whole: type | tuple[type, ...], tree: Tree, *others: Tree
) -> Tree:
    """`whole` are the kinds that are not looked into."""
    if isinstance(tree, whole):
        return change(tree, *others)
    if isinstance(tree, Pixels):
        changed = change(tree.values, *(other.values for other in others))
        return dataclasses.replace(tree, values=changed) if isinstance(changed, Tensor) else changed
    if isinstance(tree, MutableMapping):
        copied = copy.copy(tree)  # its own kind: a model's output may have attributes as well
        for key in tree:
            copied[key] = _mapped(change, whole, tree[key], *(other[key] for other in others))
        return copied
    if isinstance(tree, tuple | list):
        values = [_mapped(change, whole, *branches) for branches in zip(tree, *others, strict=True)]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        return dataclasses.replace(
            tree,
            **{n: _mapped(change, whole, *(getattr(t, n) for t in (tree, *others))) for n in names},
        )
    return tree


def ready(tree: Tree) -> Tree:
    """Return a structure as a model takes it: every `Pixels` as the real numbers it stands for."""
    if isinstance(tree, Tensor):
        return tree
    return _mapped(
        lambda leaf: leaf.real() if isinstance(leaf, Pixels) else leaf, (Tensor, Pixels), tree
    )


def with_dtype(tree: Tree, dtype: torch.dtype) -> Tree:
    """Real numbers, and those that bytes stand for, in a dtype; whole numbers as they are."""

    def change(leaf: Tensor | Pixels) -> Tensor | Pixels:
        if isinstance(leaf, Pixels):
            return dataclasses.replace(leaf, dtype=dtype)
        return leaf.to(dtype) if leaf.is_floating_point() else leaf

    return _mapped(change, (Tensor, Pixels), tree)


def joined(trees: list[Tree]) -> Tree:
    """Trees of one structure, their samples one after the other."""
    if len(trees) == 1:
        return trees[0]
    return mapped(lambda *parts: torch.cat(parts), *trees)


def rows(tree: Tree) -> int:
    """Return how many samples a structure has."""
    tensors = leaves(tree)
    return len(tensors[0]) if tensors and tensors[0].ndim else 0


def cut(tree: Tree, size: int) -> Iterator[Tree]:
    """Pieces of at most so many samples."""
    for start in range(0, max(rows(tree), 1), size):
        part = slice(start, start + size)
        yield mapped(lambda tensor, part=part: tensor[part], tree)


def spread(module: nn.Module, inputs: Tree) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
    """The arguments by which a module takes inputs.

    A tuple or list goes to forward(a, b) as arguments where it takes so many, a dict by name where
    it has those names; everything else is its one argument. Pixels become real numbers here.
    """
    inputs = ready(inputs)
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
