"""A model as one vector: w in R^M, the way the paper and the engines see it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from sdfeel.errors import InputError

__all__ = ["ParameterLayout"]


@dataclass(frozen=True)
class ParameterLayout:
    """Where each parameter of a module lies in the vector.

    The trainable parameters come first, in the order of `named_parameters()`, then the floating
    buffers (running statistics of batch normalisation): those are averaged like parameters, but no
    gradient moves them. Frozen parameters and integer buffers stay as they are in the module.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    trainable: int  # how many of the names, from the first, are trained
    dtype: torch.dtype

    @classmethod
    def of(cls, module: nn.Module) -> ParameterLayout:
        trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        buffers = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
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
            names=tuple(name for name, _ in trained + buffers),
            shapes=tuple(tensor.shape for _, tensor in trained + buffers),
            trainable=len(trained),
            dtype=trained[0][1].dtype,
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
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def vector(self, module: nn.Module) -> Tensor:
        """The vector of a module's present values."""
        own = dict(module.named_parameters()) | dict(module.named_buffers())
        return self.flatten(own)

    def split(self, vectors: Tensor) -> dict[str, Tensor]:
        """Named views into a vector, or into the rows of a matrix of them (..., M)."""
        parts = torch.split(vectors, self.sizes, dim=-1)
        lead = vectors.shape[:-1]
        return {
            name: part.view(*lead, *shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def module(self, module: nn.Module, vector: Tensor) -> nn.Module:
        """A copy of `module` that holds the values of `vector`."""
        result = copy.deepcopy(module)
        self.load(result, vector)
        return result

    @torch.no_grad()
    def load(self, module: nn.Module, vector: Tensor) -> None:
        """Write the values of `vector` into `module`."""
        own = dict(module.named_parameters()) | dict(module.named_buffers())
        for name, value in self.split(vector).items():
            own[name].copy_(value)
