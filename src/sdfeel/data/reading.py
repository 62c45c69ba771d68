"""One client's data as inputs and targets: from arrays, from tensors, or item by item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset

from sdfeel.errors import InputError
from sdfeel.trees import Pixels, Tree, mapped

Pair = tuple[Tree, Tree]
ARRAYS = torch.Tensor | np.ndarray | Pixels


def check_map_style(field: str, dataset: Any) -> None:
    """Refuse what has no length or no items by index, such as a stream."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        remedy = "must be a map-style dataset: one with a length and items by index"
        raise InputError(field, type(dataset).__name__, remedy)


def is_pair(dataset: Any) -> bool:
    """Return whether this is (inputs, targets), and cannot be a list of two clients' data."""
    is_two = isinstance(dataset, tuple | list) and len(dataset) == 2
    return is_two and isinstance(_of_pandas(dataset[1]), ARRAYS) and _of_arrays(dataset[0])


def from_arrays(dataset: Any, field: str = "data") -> Pair | None:
    """Inputs and targets as two arrays: an item of a map-style dataset is never one itself.

    Inputs may be a structure of arrays, targets a list of numbers. A mistake is that of `field`.
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
        counts = f"{shapes[0][0]} inputs and {shapes[-1][0] if shapes[-1] else 'one number'}"
        raise InputError(field, shown, f"must be equally many, a target for each input: {counts}")
    try:
        return _tensor(inputs), _tensor(targets)
    except TypeError as problem:  # an array of words or objects
        remedy = _remedy("" if getattr(targets, "dtype", np.dtype(int)).kind in "OUS" else None)
        remedy = f"{str(problem).split('. ')[0]}; {remedy}"
        raise InputError(field, "arrays that hold no numbers", remedy) from None


def _of_pandas(value: Any) -> Any:
    """A DataFrame or Series as an array of its own; anything else as it is."""
    return value.to_numpy(copy=True) if hasattr(value, "iloc") else value


def _of_arrays(value: Any) -> bool:
    """Return whether this is an array, or a structure of nothing but arrays of samples."""
    if isinstance(value, ARRAYS):
        return True
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, tuple | list) or not inner:
        return False
    return all(_of_arrays(each) and all(_shapes(each)) for each in inner)


def _of_lists(value: Any, size: int) -> bool:
    """Return whether this is a table of numbers, a list a sample."""
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


def from_tensors(dataset: Any) -> Pair | None:
    """The whole dataset at once if it is nothing but tensors; subclasses may do more: not them."""
    if type(dataset) is TensorDataset and len(dataset.tensors) > 1:
        return _pair(dataset.tensors)
    if type(dataset) is Subset:
        inner = from_tensors(dataset.dataset)
        if inner is not None:
            order = torch.as_tensor(dataset.indices, dtype=torch.int64)
            inputs, targets = (mapped(lambda tensor: tensor[order], tree) for tree in inner)
            return inputs, targets
    return None


def _pair(parts: Sequence[Any]) -> Pair:
    """Split the parts of a sample into inputs and target, which is the last part."""
    return (parts[0] if len(parts) == 2 else tuple(parts[:-1])), parts[-1]


def from_items(dataset: Any, indices: Sequence[int], client: int) -> Pair:
    """Stack these items of a map-style dataset; what is wrong names the client and sample."""
    pairs: list[Pair] = []
    for index in indices:
        item = dataset[index]
        field = f"data of client {client}, sample {index}"
        if not isinstance(item, tuple | list) or len(item) < 2:
            shown = list(item) if isinstance(item, dict) else item
            raise InputError(field, shown, _not_a_pair(dataset, item))
        inputs, target = _pair(item)
        try:
            pair = _tensor(inputs), _tensor(target)
        except (TypeError, ValueError, RuntimeError):
            kinds = f"({', '.join(type(part).__name__ for part in item)})"
            remedy = f"must be tensors, numpy arrays or numbers; {_remedy(target)}"
            raise InputError(field, kinds, remedy) from None
        if pairs and outline(pair) != outline(pairs[0]):
            remedy = (
                f"sample {indices[0]} has {outline(pairs[0])}; sequences of several lengths are "
                "filled up by sdfeel.data.from_tokens"
            )
            raise InputError(field, outline(pair), remedy)
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


def whole_targets(targets: Tree) -> Tree:
    """Losses want int64 labels; real-valued targets (regression) stay what they are."""
    if isinstance(targets, Pixels):
        return targets

    def whole(tensor: torch.Tensor) -> torch.Tensor:
        is_real = tensor.is_floating_point() or tensor.is_complex()
        return tensor if is_real else tensor.to(torch.int64)

    return mapped(whole, targets)


def outline(tree: Tree) -> Tree:
    """The shapes of a structure: equal where samples can be stacked."""
    return mapped(lambda tensor: tuple(tensor.shape), tree)
