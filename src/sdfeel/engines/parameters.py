"""A model as one vector: w in R^M, the way the paper and the engines see it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from sdfeel.errors import InputError


@dataclass(frozen=True)
class ParameterLayout:
    """The place of each parameter of a module in the vector.

    The trainable parameters come first, in the order of `named_parameters()`, then the buffers that
    a step may change: floating ones (running statistics of batch normalisation), and counters,
    which are whole numbers alone in their buffer. They are averaged like parameters, a counter to
    the nearest whole number, but no gradient moves them. Frozen parameters and tables of whole
    numbers stay as they are in the module.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    trainable: int  # how many of the names, from the first, are trained
    dtype: torch.dtype
    counters: int = 0  # how many of the names, to the last, are counters

    @classmethod
    def of(cls, module: nn.Module) -> ParameterLayout:
        trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        buffers = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
        counters = [(n, b) for n, b in module.named_buffers() if _is_counter(b)]
        if not trained:
            raise InputError("model", type(module).__name__, "it has no parameter to train")
        dtypes = {tensor.dtype for _, tensor in trained + buffers}
        if len(dtypes) > 1 or not trained[0][1].is_floating_point():
            raise InputError(
                "model",
                sorted(map(str, dtypes)),
                "all parameters and floating buffers must share one real dtype, "
                "such as model.float()",
            )
        return cls(
            names=tuple(name for name, _ in trained + buffers + counters),
            shapes=tuple(tensor.shape for _, tensor in trained + buffers + counters),
            trainable=len(trained),
            dtype=trained[0][1].dtype,
            counters=len(counters),
        )

    @property
    def sizes(self) -> list[int]:
        return [prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(self.sizes)

    @property
    def parameters(self) -> int:
        """M: the number of trainable parameters, the first part of the vector."""
        return sum(self.sizes[: self.trainable])

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The vector of named tensors, as in `dict(module.state_dict())`."""
        parts = [tensors[name].detach().reshape(-1) for name in self.names]
        return torch.cat([part.to(self.dtype) for part in parts])

    def vector(self, module: nn.Module) -> Tensor:
        """The vector of a module's present values."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        return self.flatten(tensors)

    def split(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return named views into a vector, or into the rows of a matrix of them (..., M)."""
        parts = torch.split(vectors, self.sizes, dim=-1)
        lead = vectors.shape[:-1]
        return {
            name: part.view((*lead, *shape))
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def module(self, module: nn.Module, vector: Tensor) -> nn.Module:
        """A copy of `module` that holds the values of `vector`, under its own names.

        What `torch.compile` wrapped comes back unwrapped: without `_orig_mod.` in its names.
        """
        result = copy.deepcopy(module)
        self.load(result, vector)
        return _unwrapped(result)

    @torch.no_grad()
    def load(self, module: nn.Module, vector: Tensor) -> None:
        """Write the values of `vector` into `module`."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        for name, value in self.split(vector).items():
            tensor = tensors[name]
            set_counter(tensor, value) if _is_counter(tensor) else tensor.copy_(value)


def _unwrapped(module: nn.Module) -> nn.Module:
    for name, child in module.named_children():
        module._modules[name] = _unwrapped(child)
    inner = module._modules.get("_orig_mod")
    return module if inner is None else inner


def set_counter(counter: Tensor, value: Tensor) -> None:
    """Write a number of the vector into a counter; one that has not changed stays exact."""
    if float(counter.to(value.dtype)) != float(value):
        counter.fill_(round(float(value)) if value.isfinite() else 0)


def _is_counter(buffer: Tensor) -> bool:
    is_whole = not buffer.is_floating_point() and not buffer.is_complex()
    return is_whole and buffer.dtype != torch.bool and buffer.numel() == 1


def is_table(buffer: Tensor) -> bool:
    """Return whether a buffer is no part of the vector: it stays as it is in the module."""
    return not buffer.is_floating_point() and not _is_counter(buffer)
