"""All clients' samples in one store: what every engine reads, and what a rank holds its part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sdfeel.data.fresh import Fresh, drawn_by, warn_if_random
from sdfeel.data.loaders import unwrapped
from sdfeel.data.reading import (
    Pair,
    check_map_style,
    from_arrays,
    from_items,
    from_tensors,
    outline,
    whole_targets,
)
from sdfeel.errors import InputError
from sdfeel.trees import Pixels, Tree, joined, leaves, mapped, ready, rows


@dataclass(frozen=True, eq=False)
class ClientData:
    """The rows offsets[i]:offsets[i+1] of `inputs` and `targets` are client i's samples.

    Both are tensors, or any nested structure of them. Integer targets are int64; everything else
    keeps its dtype. Images may be `Pixels`: bytes here, real numbers in what is handed out.

    fresh  for each client what its batches are read from anew, or None
    index  where clients are views of one store: then position p of all clients' samples, one client
           after the other, is the row index[p] of `inputs` and `targets`

    >>> x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    >>> sdfeel.ClientData.from_datasets([(x[:3], y[:3]), (x[3:], y[3:])]).samples
    array([3, 1])
    """

    inputs: Tree
    targets: Tree
    offsets: NDArray[np.int64]
    fresh: tuple[Fresh | None, ...] = ()
    index: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Refuse a store whose three parts don't fit: every reader relies on it."""
        size = rows(self.inputs)
        for what, tree in (("inputs", self.inputs), ("targets", self.targets)):
            for leaf in leaves(tree):
                if leaf.ndim == 0 or len(leaf) != size:
                    count = len(leaf) if leaf.ndim else "a number"
                    raise InputError(what, count, f"must be as many as the {size} inputs")
        if self.index is not None:
            if len(self.index) and not 0 <= self.index.min() <= self.index.max() < size:
                raise InputError("index", self.index, f"must be rows of {size} samples")
            size = len(self.index)
        ends = self.offsets
        if len(ends) < 2 or ends[0] != 0 or ends[-1] != size:
            raise InputError("offsets", ends, f"must go from 0 to the number of samples, {size}")
        for client in np.flatnonzero(np.diff(ends) < 1)[:1]:
            raise InputError(f"data of client {client}", [], "every client needs a sample or more")

    @classmethod
    def from_datasets(cls, datasets: Sequence[Any]) -> ClientData:
        """Read one dataset per client, each once; of a random one `RandomTransformWarning` says so.

        It is a pair of arrays (inputs, targets), or map-style with (input, target) items, or a
        `DataLoader` of such, or a store like this one. Tensors, numpy arrays and numbers are taken,
        and tuples, lists and dicts of them; of an item of three or more the last is the target.
        All clients must agree in structure, shape and dtype. `TensorDataset`, and `Subset` of it,
        are read without a loop over samples.
        """
        if len(datasets) == 0:
            raise InputError("datasets", [], "at least one client's data is needed")
        pairs: list[Pair] = []
        by_item: dict[int, Any] = {}
        datasets = [unwrapped(dataset) for dataset in datasets]
        for client, dataset in enumerate(datasets):
            size = count_samples(dataset, client)
            pair = _at_once(dataset)
            if isinstance(dataset, Fresh):
                with drawn_by(0):  # the same whichever rank reads it
                    pair = from_items(dataset, range(size), client)
            elif pair is None:
                pair = from_items(dataset, range(size), client)
                by_item[client] = dataset
            pairs.append((pair[0], whole_targets(pair[1])))
            _check_alike(client, pairs[-1], pairs[0])
        warn_if_random(by_item, pairs)
        inputs, targets = (joined(list(column)) for column in zip(*pairs, strict=True))
        fresh = tuple(each if isinstance(each, Fresh) else None for each in datasets)
        ends = _offsets([rows(x) for x, _ in pairs])
        return cls(inputs, targets, ends, fresh if any(fresh) else ())

    @classmethod
    def head(cls, dataset: Any, count: int) -> ClientData:
        """Read the first samples of a dataset only, and draw nothing from the user's generators."""
        dataset = unwrapped(dataset)
        size = min(count, count_samples(dataset, 0))
        pair = _at_once(dataset)
        if pair is None:
            with drawn_by(0):
                pair = from_items(dataset, range(size), 0)
        inputs, targets = (mapped(lambda tensor: tensor[:size], tree) for tree in pair)
        return cls(inputs, whole_targets(targets), np.array([0, size]))

    @classmethod
    def from_partition(cls, inputs: Tree, targets: Tree, parts: Sequence[ArrayLike]) -> ClientData:
        """Client i gets the rows parts[i] (see `sdfeel.data.partition`) of inputs and targets."""
        if len(parts) == 0:
            raise InputError("parts", [], "at least one client's indices are needed")
        size = rows(inputs)
        if size != rows(targets):
            raise InputError("targets", rows(targets), f"must be as many as the {size} inputs")
        chosen = [_indices(part, size, client) for client, part in enumerate(parts)]
        order = torch.from_numpy(np.concatenate(chosen))
        taken, aims = (mapped(lambda tensor: tensor[order], tree) for tree in (inputs, targets))
        return cls(taken, whole_targets(aims), _offsets([len(rows) for rows in chosen]))

    @classmethod
    def views(cls, inputs: Tree, targets: Tree, parts: Sequence[ArrayLike]) -> ClientData:
        """Client i gets the rows parts[i], as in `from_partition`, but nothing is copied."""
        if len(parts) == 0:
            raise InputError("parts", [], "at least one client's indices are needed")
        size = rows(inputs)
        if size != rows(targets):
            raise InputError("targets", rows(targets), f"must be as many as the {size} inputs")
        index, lengths = _joined(parts, size)
        return cls(inputs, whole_targets(targets), _offsets(lengths), (), index)

    @property
    def clients(self) -> int:
        """C, the number of clients."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> NDArray[np.int64]:
        """|S_i| for every client i."""
        return np.diff(self.offsets)

    def client(self, index: int) -> Pair:
        """Return a client's inputs and targets, as a model takes them: views, of pixels copies."""
        return _ready(self._stored_by(index))

    def _stored_by(self, index: int) -> Pair:
        if not 0 <= index < self.clients:
            raise InputError("client", index, f"must be in 0..{self.clients - 1}")
        return self.stored(slice(int(self.offsets[index]), int(self.offsets[index + 1])))

    def part(self, chosen: slice | torch.Tensor) -> Pair:
        """Inputs and targets of some rows of the store, as a model takes them."""
        return _ready(self.stored(chosen))

    def stored(self, chosen: slice | torch.Tensor) -> Pair:
        """Return samples as they are kept: views of a slice without an index, else copies.

        chosen  positions among all clients' samples
        """
        if self.index is not None:
            places = self.index[chosen if isinstance(chosen, slice) else chosen.cpu().numpy()]
            chosen = torch.from_numpy(places).to(leaves(self.targets)[0].device)
        inputs = mapped(lambda tensor: _taken(tensor, chosen), self.inputs)
        return inputs, mapped(lambda tensor: _taken(tensor, chosen), self.targets)

    def batch(self, client: int, chosen: torch.Tensor, number: int) -> Pair:
        """Inputs and targets of some rows of the store, all of one client, as a model takes them.

        number  what is random in data that is read anew is drawn by
        """
        fresh = self.fresh[client] if self.fresh else None
        if fresh is None:
            return self.part(chosen)
        first = int(self.offsets[client])
        with drawn_by(number):
            pair = from_items(fresh, [int(row) - first for row in chosen], client)
        shapes, stored = (
            outline(mapped(lambda tensor: tensor[0], samples))
            for samples in (pair, self.stored(slice(1)))
        )
        for shape, before in zip(shapes, stored, strict=True):
            if shape != before:
                raise InputError(f"a sample of client {client}", shape, f"was {before} at first")
        return pair[0], whole_targets(pair[1])

    def select(self, clients: Sequence[int] | NDArray[np.int64]) -> ClientData:
        """The data of these clients, in this order, as a store of its own."""
        chosen = [self._stored_by(int(index)) for index in clients]
        if not chosen:
            raise InputError("clients", [], "at least one client must be selected")
        inputs, targets = (joined(list(column)) for column in zip(*chosen, strict=True))
        fresh = tuple(self.fresh[int(index)] for index in clients) if self.fresh else ()
        return ClientData(inputs, targets, _offsets([rows(x) for x, _ in chosen]), fresh)

    def check_labels(self, classes: int) -> None:
        """Raise InputError, naming the client and the label, unless all are in 0..classes-1."""
        if self.targets.is_floating_point() or self.targets.is_complex():
            raise InputError("targets", self.targets.dtype, "labels must be integers")
        labels = self.targets.reshape(len(self.targets), -1)
        wrong = ((labels < 0) | (labels >= classes)).nonzero()
        if len(wrong) and self.index is not None:  # somebody must hold it
            labels = self.stored(slice(None))[1].reshape(len(self.index), -1)
            wrong = ((labels < 0) | (labels >= classes)).nonzero()
        if len(wrong):
            row, column = (int(i) for i in wrong[0])
            client = int(np.searchsorted(self.offsets, row, side="right")) - 1
            from_one = int(labels.min()) == 1 and int(labels.max()) == classes
            hint = "; yours seem to count from 1: subtract 1" if from_one else ""
            raise InputError(
                f"label of client {client}, sample {row - int(self.offsets[client])}",
                int(labels[row, column]),
                f"must be in 0..{classes - 1}: the model has {classes} outputs{hint}",
            )


def _offsets(samples: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(samples)]).astype(np.int64)


def _taken(tensor: torch.Tensor, chosen: slice | torch.Tensor) -> torch.Tensor:
    """tensor[chosen]; by `index_select`, which takes a third of the time for a small batch."""
    if isinstance(chosen, slice):
        return tensor[chosen]
    picked = tensor.index_select(0, chosen.reshape(-1))
    return picked if chosen.ndim == 1 else picked.view(*chosen.shape, *tensor.shape[1:])


def _ready(pair: Pair) -> Pair:
    return ready(pair[0]), ready(pair[1])


def count_samples(dataset: Any, client: int) -> int:
    """|S_i| of what a user gives as the data of client i."""
    dataset, field = unwrapped(dataset), f"data of client {client}"
    if isinstance(dataset, ClientData):
        return int(dataset.offsets[-1])
    refuse_table(field, dataset)
    pair = from_arrays(dataset, field)
    if pair is None:
        check_map_style(field, dataset)
    size = len(dataset) if pair is None else rows(pair[0])
    if size == 0:
        raise InputError(field, [], "a sample or more is needed")
    return size


def refuse_table(field: str, given: Any) -> None:
    """Refuse a table with named columns, such as a DataFrame: which of them is the target?"""
    if isinstance(given, Mapping) or hasattr(given, "iloc"):
        remedy = (
            "a table of columns: sdfeel.data.from_pandas(frame, label=..., client=...) makes "
            "clients of it; else a pair (inputs, targets) or a map-style dataset"
        )
        raise InputError(field, list(given), remedy)


def _at_once(dataset: Any) -> Pair | None:
    """Inputs and targets without a loop over samples, where that is possible."""
    if isinstance(dataset, ClientData):
        return dataset.stored(slice(None))
    return from_arrays(dataset) or from_tensors(dataset)


def _check_alike(client: int, pair: Pair, first: Pair) -> None:
    for what, *trees in zip(("inputs", "targets"), pair, first, strict=True):
        kind, wanted = (_look(tree) for tree in trees)
        if kind != wanted:
            raise InputError(f"{what} of client {client}", kind, f"must be as client 0's: {wanted}")


def _look(tree: Tree) -> str:
    """Describe what all clients' samples must have in common."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {_look(inner)}" for key, inner in tree.items()) + "}"
    if isinstance(tree, tuple | list):
        return "(" + ", ".join(_look(inner) for inner in tree) + ")"
    if isinstance(tree, Pixels):
        return f"pixels {tuple(tree.shape[1:])} of mean {tree.mean} and std {tree.std}"
    return f"{tree.dtype} {tuple(tree.shape[1:])}"


def _joined(parts: Sequence[ArrayLike], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row numbers of all clients, one after the other, and how many each has."""
    if isinstance(parts, np.ndarray) and parts.ndim == 2 and parts.dtype.kind in "iu":
        index, lengths = parts.reshape(-1), np.full(len(parts), parts.shape[1])
    else:
        arrays = [np.asarray(part) for part in parts]
        if any(array.ndim != 1 or array.dtype != np.int64 for array in arrays):
            arrays = [_indices(part, size, client) for client, part in enumerate(arrays)]
        index, lengths = np.concatenate(arrays), np.array([len(array) for array in arrays])
    if len(index) and not 0 <= index.min() <= index.max() < size:
        for client, part in enumerate(parts):
            _indices(part, size, client)  # which names the one that is wrong
    return np.ascontiguousarray(index, dtype=np.int64), lengths


def _indices(part: ArrayLike, rows: int, client: int) -> NDArray[np.int64]:
    indices = np.asarray(part)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise InputError(f"indices of client {client}", part, "must be a vector of integers")
    if indices.size and not (indices.min() >= 0 and indices.max() < rows):
        worst = int(indices.min() if indices.min() < 0 else indices.max())
        raise InputError(f"indices of client {client}", worst, f"must be in 0..{rows - 1}")
    return indices.astype(np.int64)
