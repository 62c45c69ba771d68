"""All clients' samples in one store: what every engine reads, and what a rank holds its part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Subset, TensorDataset

from sdfeel.data.fresh import Fresh, drawn_by
from sdfeel.data.loaders import unwrapped
from sdfeel.errors import InputError
from sdfeel.trees import Pixels, Tree, joined, leaves, mapped, ready, rows

__all__ = ["ClientData", "count_samples"]

Pair = tuple[Tree, Tree]
ARRAYS = torch.Tensor | np.ndarray | Pixels


@dataclass(frozen=True, eq=False)
class ClientData:
    """The rows offsets[i]:offsets[i+1] of `inputs` and `targets` are client i's samples.

    Both are tensors, or any nested structure of them. Integer targets are int64; everything else
    keeps its dtype. Images may be `Pixels`: bytes here, real numbers in what is handed out.

    fresh  for each client what its batches are read from anew, or None
    """

    inputs: Tree
    targets: Tree
    offsets: NDArray[np.int64]
    fresh: tuple[Fresh | None, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a store whose three parts don't fit: every reader relies on it."""
        size = rows(self.inputs)
        for what, tree in (("inputs", self.inputs), ("targets", self.targets)):
            for leaf in leaves(tree):
                if leaf.ndim == 0 or len(leaf) != size:
                    found = len(leaf) if leaf.ndim else "a number"
                    raise InputError(what, found, f"must be as many as the {size} inputs")
        ends = self.offsets
        if len(ends) < 2 or ends[0] != 0 or ends[-1] != size:
            raise InputError("offsets", ends, f"must go from 0 to the number of samples, {size}")
        for client in np.flatnonzero(np.diff(ends) < 1):
            raise InputError(f"data of client {client}", [], "every client needs a sample or more")

    @classmethod
    def from_datasets(cls, datasets: Sequence[Any]) -> ClientData:
        """One dataset per client, each read once.

        It is a pair of arrays (inputs, targets), or map-style with (input, target) items, or a
        `DataLoader` of such, or a store like this one. Tensors, numpy arrays and numbers are taken,
        and tuples, lists and dicts of them; of an item of three or more the last is the target.
        All clients must agree in structure, shape and dtype. `TensorDataset`, and `Subset` of it,
        are read without a loop over samples.
        """
        if len(datasets) == 0:
            raise InputError("datasets", [], "at least one client's data is needed")
        pairs = [_read(dataset, client) for client, dataset in enumerate(datasets)]
        for client, pair in enumerate(pairs):
            _check_alike(client, pair, pairs[0])
        inputs, targets = (joined(list(column)) for column in zip(*pairs, strict=True))
        fresh = tuple(own if isinstance(own, Fresh) else None for own in datasets)
        ends = _offsets([rows(x) for x, _ in pairs])
        return cls(inputs, targets, ends, fresh if any(fresh) else ())

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
        return cls(taken, _targets(aims), _offsets([len(rows) for rows in chosen]))

    @property
    def clients(self) -> int:
        """C, the number of clients."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> NDArray[np.int64]:
        """|S_i| for every client i."""
        return np.diff(self.offsets)

    def client(self, index: int) -> Pair:
        """One client's inputs and targets, as a model takes them: views, but of pixels copies."""
        return _ready(self._own(index))

    def _own(self, index: int) -> Pair:
        if not 0 <= index < self.clients:
            raise InputError("client", index, f"must be in 0..{self.clients - 1}")
        own = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return self.stored(own)

    def part(self, chosen: slice | torch.Tensor) -> Pair:
        """Inputs and targets of some rows of the store, as a model takes them."""
        return _ready(self.stored(chosen))

    def stored(self, chosen: slice | torch.Tensor) -> Pair:
        """The same as they are kept: views of a slice, else copies."""
        return mapped(lambda t: t[chosen], self.inputs), mapped(lambda t: t[chosen], self.targets)

    def batch(self, client: int, chosen: torch.Tensor, number: int) -> Pair:
        """Inputs and targets of some rows of the store, all of one client, as a model takes them.

        number  what is random in data that is read anew is drawn by
        """
        fresh = self.fresh[client] if self.fresh else None
        if fresh is None:
            return self.part(chosen)
        first = int(self.offsets[client])
        with drawn_by(number):
            pair = _items(fresh, [int(row) - first for row in chosen], client)
        for own, kept in zip(pair, self.stored(slice(1)), strict=True):
            now, before = (_outline(mapped(lambda t: t[0], tree)) for tree in (own, kept))
            if now != before:
                raise InputError(f"a sample of client {client}", now, f"was {before} at first")
        return pair[0], _targets(pair[1])

    def select(self, clients: Sequence[int] | NDArray[np.int64]) -> ClientData:
        """The data of these clients, in this order, as a store of its own."""
        chosen = [self._own(int(index)) for index in clients]
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


def _offsets(samples: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(samples)]).astype(np.int64)


def _ready(pair: Pair) -> Pair:
    return ready(pair[0]), ready(pair[1])


def _targets(targets: Tree) -> Tree:
    """Losses want int64 labels; real-valued targets (regression) stay what they are."""
    if isinstance(targets, Pixels):
        return targets

    def whole(tensor: torch.Tensor) -> torch.Tensor:
        real = tensor.is_floating_point() or tensor.is_complex()
        return tensor if real else tensor.to(torch.int64)

    return mapped(whole, targets)


def count_samples(dataset: Any) -> int:
    """|S_i| of what a user gives as the data of client i."""
    dataset = unwrapped(dataset)
    if isinstance(dataset, ClientData):
        return rows(dataset.inputs)
    if isinstance(dataset, Mapping) or hasattr(dataset, "iloc"):
        raise InputError(
            "data of a client",
            list(dataset),
            "must be a pair (inputs, targets) or a map-style dataset; sdfeel.data.from_pandas "
            "makes clients of one DataFrame",
        )
    pair = _arrays(dataset)
    return len(dataset) if pair is None else rows(pair[0])


def _arrays(dataset: Any) -> Pair | None:
    """Inputs and targets as two arrays: an item of a map-style dataset is never one itself.

    Inputs may be a structure of arrays, targets a list of numbers.
    """
    if not isinstance(dataset, tuple | list) or len(dataset) != 2:
        return None
    inputs, targets = (_of_pandas(part) for part in dataset)
    if isinstance(targets, list) and _flat(targets) and _of_lists(inputs, len(targets)):
        inputs = torch.as_tensor(inputs)
    if not _of_arrays(inputs):
        return None
    if isinstance(targets, list) and len(targets) == _shapes(inputs)[0][0] and _flat(targets):
        targets = np.asarray(targets)
    if not _of_arrays(targets):
        return None
    shapes = [*_shapes(inputs), *_shapes(targets)]
    if not all(shape and shape[0] == shapes[0][0] for shape in shapes):
        if not isinstance(inputs, ARRAYS):
            return None  # two samples, each a structure
        shown = " and ".join(str(list(shape)) for shape in shapes)
        raise InputError("data", shown, "inputs and targets of a client must be equally many")
    try:
        return _tensor(inputs), _tensor(targets)
    except TypeError as problem:  # an array of words or objects
        remedy = _remedy("" if getattr(targets, "dtype", np.dtype(int)).kind in "OUS" else None)
        raise InputError(
            "data", "arrays that hold no numbers", f"{str(problem).split('. ')[0]}; {remedy}"
        ) from None


def _of_pandas(value: Any) -> Any:
    """A DataFrame or Series as an array of its own; anything else as it is."""
    return value.to_numpy(copy=True) if hasattr(value, "iloc") else value


def _of_arrays(value: Any) -> bool:
    """Whether it is an array, or a structure of nothing but arrays with a first dimension."""
    if isinstance(value, ARRAYS):
        return True
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, tuple | list) or not inner:
        return False
    return all(_of_arrays(each) and all(_shapes(each)) for each in inner)


def _of_lists(value: Any, size: int) -> bool:
    """Whether it is a table of numbers, a list a sample."""
    lists = isinstance(value, list) and len(value) == size
    return lists and all(isinstance(row, list) and _flat(row) for row in value)


def _shapes(value: Any) -> list[tuple[int, ...]]:
    if isinstance(value, ARRAYS):
        return [tuple(value.shape)]
    inner = value.values() if isinstance(value, dict) else value
    return [shape for each in inner for shape in _shapes(each)]


def _flat(values: list[Any]) -> bool:
    return all(isinstance(value, int | float | np.number) for value in values)


def _tensor(value: Any) -> Tree:
    """A structure of tensors from one of tensors, numpy arrays and numbers."""
    if isinstance(value, Pixels):
        return value
    if isinstance(value, dict):
        return {key: _tensor(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list) and not _flat(list(value)):
        return tuple(_tensor(inner) for inner in value)
    return torch.as_tensor(value)


def _read(dataset: Any, client: int) -> Pair:
    dataset = unwrapped(dataset)
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
    if isinstance(dataset, ClientData):
        return dataset.inputs, dataset.targets
    if isinstance(dataset, Fresh):
        with drawn_by(0):  # the same whichever rank reads it
            pair = _items(dataset, range(size), client)
    else:
        pair = _arrays(dataset) or _tensors(dataset) or _items(dataset, range(size), client)
    return pair[0], _targets(pair[1])


def _tensors(dataset: Any) -> Pair | None:
    """The whole dataset at once if it is nothing but tensors; subclasses may do more: not them."""
    if type(dataset) is TensorDataset and len(dataset.tensors) > 1:
        return _pair(dataset.tensors)
    if type(dataset) is Subset:
        inner = _tensors(dataset.dataset)
        if inner is not None:
            order = torch.as_tensor(dataset.indices, dtype=torch.int64)
            chosen = [mapped(lambda tensor: tensor[order], tree) for tree in inner]
            return chosen[0], chosen[1]
    return None


def _pair(parts: Sequence[Any]) -> Pair:
    """Of several parts the last is the target."""
    return (parts[0] if len(parts) == 2 else tuple(parts[:-1])), parts[-1]


def _items(dataset: Any, indices: Sequence[int], client: int) -> Pair:
    pairs: list[Pair] = []
    for index in indices:
        item = dataset[index]
        if not isinstance(item, tuple | list) or len(item) < 2:
            shown = list(item) if isinstance(item, dict) else item
            raise InputError(
                f"data of client {client}, sample {index}", shown, _not_a_pair(dataset, item)
            )
        try:
            found, target = _pair(item)
            pair = _tensor(found), _tensor(target)
        except (TypeError, ValueError, RuntimeError):
            kinds = f"({', '.join(type(part).__name__ for part in item)})"
            raise InputError(
                f"data of client {client}, sample {index}",
                kinds,
                f"must be tensors, numpy arrays or numbers; {_remedy(item[-1])}",
            ) from None
        if pairs and _outline(pair) != _outline(pairs[0]):
            raise InputError(
                f"data of client {client}, sample {index}",
                _outline(pair),
                f"sample {indices[0]} has {_outline(pairs[0])}; sequences of several lengths are "
                "filled up by sdfeel.data.from_tokens",
            )
        pairs.append(pair)
    inputs, targets = (
        mapped(lambda *tensors: torch.stack(tensors), *column)
        for column in zip(*pairs, strict=True)
    )
    return inputs, targets


def _remedy(target: Any) -> str:
    if isinstance(target, str):
        return "words become class numbers: np.unique(words, return_inverse=True)[1]"
    return "numbers are wanted: give the dataset a transform, or use .astype(np.float32)"


def _not_a_pair(dataset: Any, item: Any) -> str:
    if isinstance(item, dict):
        return (
            "must be a pair (input, target); of rows with named columns "
            "sdfeel.data.from_huggingface(rows, inputs=..., label=...) makes pairs"
        )
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        return (
            "must be a pair (input, target); inputs and targets of a client are taken as two "
            "arrays: (np.asarray(inputs), np.asarray(targets))"
        )
    return "must be a pair (input, target)"


def _outline(tree: Tree) -> Tree:
    """The shapes of a structure: equal where samples can be stacked."""
    if isinstance(tree, dict):
        return {key: _outline(inner) for key, inner in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(_outline(inner) for inner in tree)
    return tuple(tree.shape)


def _check_alike(client: int, pair: Pair, first: Pair) -> None:
    for what, own, other in zip(("inputs", "targets"), pair, first, strict=True):
        mine, theirs = (_look(tree) for tree in (own, other))
        if mine != theirs:
            raise InputError(f"{what} of client {client}", mine, f"must be as client 0's: {theirs}")


def _look(tree: Tree) -> str:
    """What all clients' samples must have in common, in words."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {_look(inner)}" for key, inner in tree.items()) + "}"
    if isinstance(tree, tuple | list):
        return "(" + ", ".join(_look(inner) for inner in tree) + ")"
    if isinstance(tree, Pixels):
        return f"pixels {tuple(tree.shape[1:])} of mean {tree.mean} and std {tree.std}"
    return f"{tree.dtype} {tuple(tree.shape[1:])}"


def _indices(part: ArrayLike, rows: int, client: int) -> NDArray[np.int64]:
    indices = np.asarray(part)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise InputError(f"indices of client {client}", part, "must be a vector of integers")
    if indices.size and not (indices.min() >= 0 and indices.max() < rows):
        worst = int(indices.min() if indices.min() < 0 else indices.max())
        raise InputError(f"indices of client {client}", worst, f"must be in 0..{rows - 1}")
    return indices.astype(np.int64)
