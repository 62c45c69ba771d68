"""All clients' samples in one store: what every engine reads, and what a rank holds its part of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Subset, TensorDataset

from sdfeel.errors import InputError

__all__ = ["ClientData", "count_samples"]

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class ClientData:
    """The rows offsets[i]:offsets[i+1] of `inputs` and `targets` are client i's samples.

    Integer targets are int64; everything else keeps its dtype.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Refuse a store whose three parts don't fit: every reader relies on it."""
        rows = len(self.inputs)
        if len(self.targets) != rows:
            raise InputError("targets", len(self.targets), f"must be as many as the {rows} inputs")
        ends = self.offsets
        if len(ends) < 2 or ends[0] != 0 or ends[-1] != rows:
            raise InputError("offsets", ends, f"must go from 0 to the number of samples, {rows}")
        for client in np.flatnonzero(np.diff(ends) < 1):
            raise InputError(f"data of client {client}", [], "every client needs a sample or more")

    @classmethod
    def from_datasets(cls, datasets: Sequence[Any]) -> ClientData:
        """One dataset per client, each read once.

        It is a pair of arrays (inputs, targets), or map-style with (input, target) items. Tensors,
        numpy arrays and numbers are taken; all clients must agree in shape and dtype.
        `TensorDataset`, and `Subset` of it, are read without a loop over samples.
        """
        if len(datasets) == 0:
            raise InputError("datasets", [], "at least one client's data is needed")
        pairs = [_read(dataset, client) for client, dataset in enumerate(datasets)]
        for client, pair in enumerate(pairs):
            _check_alike(client, pair, pairs[0])
        inputs, targets = (torch.cat(column) for column in zip(*pairs, strict=True))
        return cls(inputs, targets, _offsets([len(x) for x, _ in pairs]))

    @classmethod
    def from_partition(
        cls, inputs: torch.Tensor, targets: torch.Tensor, parts: Sequence[ArrayLike]
    ) -> ClientData:
        """Client i gets the rows parts[i] (see `sdfeel.data.partition`) of the two tensors."""
        if len(parts) == 0:
            raise InputError("parts", [], "at least one client's indices are needed")
        if len(inputs) != len(targets):
            raise InputError(
                "targets", len(targets), f"must be as many as the {len(inputs)} inputs"
            )
        rows = [_indices(part, len(inputs), client) for client, part in enumerate(parts)]
        order = torch.from_numpy(np.concatenate(rows))
        return cls(inputs[order], _targets(targets[order]), _offsets([len(r) for r in rows]))

    @property
    def clients(self) -> int:
        """C, the number of clients."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> NDArray[np.int64]:
        """|S_i| for every client i."""
        return np.diff(self.offsets)

    def client(self, index: int) -> Pair:
        """Views of one client's inputs and targets."""
        if not 0 <= index < self.clients:
            raise InputError("client", index, f"must be in 0..{self.clients - 1}")
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return self.inputs[rows], self.targets[rows]

    def select(self, clients: Sequence[int] | NDArray[np.int64]) -> ClientData:
        """The data of these clients, in this order, as a store of its own."""
        chosen = [self.client(int(index)) for index in clients]
        if not chosen:
            raise InputError("clients", [], "at least one client must be selected")
        inputs, targets = (torch.cat(column) for column in zip(*chosen, strict=True))
        return ClientData(inputs, targets, _offsets([len(x) for x, _ in chosen]))

    def check_labels(self, classes: int) -> None:
        """Raise InputError, naming the client and the label, unless all are in 0..classes-1."""
        if self.targets.is_floating_point() or self.targets.is_complex():
            raise InputError("targets", self.targets.dtype, "labels must be integers")
        rows = self.targets.reshape(len(self.targets), -1)
        wrong = ((rows < 0) | (rows >= classes)).nonzero()
        if len(wrong):
            row, column = (int(i) for i in wrong[0])
            client = int(np.searchsorted(self.offsets, row, side="right")) - 1
            raise InputError(
                f"label of client {client}, sample {row - int(self.offsets[client])}",
                int(rows[row, column]),
                f"must be in 0..{classes - 1}: the model has {classes} outputs",
            )


def _offsets(samples: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(samples)]).astype(np.int64)


def _targets(targets: torch.Tensor) -> torch.Tensor:
    """Losses want int64 labels; real-valued targets (regression) stay what they are."""
    real = targets.is_floating_point() or targets.is_complex()
    return targets if real else targets.to(torch.int64)


def count_samples(dataset: Any) -> int:
    """|S_i| of what a user gives as the data of client i."""
    pair = _arrays(dataset)
    return len(dataset if pair is None else pair[0])


def _arrays(dataset: Any) -> Pair | None:
    """Inputs and targets as two arrays: an item of a map-style dataset is never one itself."""
    kinds = torch.Tensor | np.ndarray
    if not isinstance(dataset, tuple | list) or len(dataset) != 2:
        return None
    inputs, targets = dataset
    if not isinstance(inputs, kinds) or not isinstance(targets, kinds):
        return None
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        shapes = f"{list(inputs.shape)} and {list(targets.shape)}"
        raise InputError("data", shapes, "inputs and targets of a client must be equally many")
    return torch.as_tensor(inputs), torch.as_tensor(targets)


def _read(dataset: Any, client: int) -> Pair:
    try:
        size = count_samples(dataset)
    except TypeError:
        raise InputError(
            f"data of client {client}",
            type(dataset).__name__,
            "must be a map-style dataset: one with a length and items by index",
        ) from None
    if size == 0:
        raise InputError(f"data of client {client}", [], "every client needs a sample or more")
    pair = _arrays(dataset) or _tensors(dataset) or _items(dataset, size, client)
    return pair[0], _targets(pair[1])


def _tensors(dataset: Any) -> Pair | None:
    """The whole dataset at once if it is nothing but tensors; subclasses may do more: not them."""
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    if type(dataset) is Subset:
        inner = _tensors(dataset.dataset)
        if inner is not None:
            rows = torch.as_tensor(dataset.indices, dtype=torch.int64)
            return inner[0][rows], inner[1][rows]
    return None


def _items(dataset: Any, size: int, client: int) -> Pair:
    pairs: list[Pair] = []
    for index in range(size):
        item = dataset[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(
                f"data of client {client}, sample {index}", item, "must be a pair (input, target)"
            )
        try:
            pair = torch.as_tensor(item[0]), torch.as_tensor(item[1])
        except (TypeError, ValueError, RuntimeError):
            kinds = f"({type(item[0]).__name__}, {type(item[1]).__name__})"
            raise InputError(
                f"data of client {client}, sample {index}",
                kinds,
                "must be tensors, numpy arrays or numbers; give the dataset a transform",
            ) from None
        if pairs and (pair[0].shape, pair[1].shape) != (pairs[0][0].shape, pairs[0][1].shape):
            raise InputError(
                f"data of client {client}, sample {index}",
                (tuple(pair[0].shape), tuple(pair[1].shape)),
                f"sample 0 has {(tuple(pairs[0][0].shape), tuple(pairs[0][1].shape))}",
            )
        pairs.append(pair)
    inputs, targets = (torch.stack(column) for column in zip(*pairs, strict=True))
    return inputs, targets


def _check_alike(client: int, pair: Pair, first: Pair) -> None:
    for what, own, other in zip(("inputs", "targets"), pair, first, strict=True):
        if own.shape[1:] != other.shape[1:] or own.dtype != other.dtype:
            raise InputError(
                f"{what} of client {client}",
                f"{own.dtype} {tuple(own.shape[1:])}",
                f"must be as client 0's: {other.dtype} {tuple(other.shape[1:])}",
            )


def _indices(part: ArrayLike, rows: int, client: int) -> NDArray[np.int64]:
    indices = np.asarray(part)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise InputError(f"indices of client {client}", part, "must be a vector of integers")
    if indices.size and not (indices.min() >= 0 and indices.max() < rows):
        worst = int(indices.min() if indices.min() < 0 else indices.max())
        raise InputError(f"indices of client {client}", worst, f"must be in 0..{rows - 1}")
    return indices.astype(np.int64)
