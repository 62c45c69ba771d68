"""Data as others keep it: arrays, pandas, token ids, Hugging Face datasets, Flower's partitions.

Each gives a `ClientData` for `sdfeel.train`: with a client for each value of a column, or as one
store that `partition=` shares out. None of these packages is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sdfeel.data.clients import ClientData
from sdfeel.errors import InputError, closest
from sdfeel.trees import Pixels, Tree, rows
from sdfeel.validation import whole_number

Names = str | Sequence[str] | Mapping[str, str]
Scale = float | Sequence[float]


def from_arrays(inputs: Tree, targets: Any, *, client: ArrayLike | None = None) -> ClientData:
    """Take arrays or tensors, or a structure of them, with a row for each sample.

    Args:
        inputs: what a model takes.
        targets: what it should answer.
        client: the client of each row: every value is one, in sorted order. None: one store for
            all clients, which `partition=` shares out.

    Example:
        >>> from sdfeel.data import from_arrays
        >>> from_arrays([[0.1], [0.2], [0.3]], [0, 1, 1], client=["b", "a", "b"]).samples.tolist()
        [1, 2]
    """
    return _by_client(ClientData.from_datasets([(inputs, targets)]), client)


def from_pandas(
    frame: Any,
    *,
    label: Hashable,
    client: Hashable | None = None,
    features: Sequence[Hashable] | None = None,
) -> ClientData:
    """Take a DataFrame: columns of numbers as one input vector of float32.

    Args:
        frame: a pandas DataFrame.
        label: the column to learn: class numbers, or real numbers for a regression.
        client: the column with the client of each row: every value is one, in sorted order.
        features: the columns to learn from; all others by default.
    """
    if not hasattr(frame, "columns"):
        raise InputError("frame", type(frame).__name__, "a pandas DataFrame")
    columns = list(frame.columns)
    for what, name in (("label", label), ("client", client)):
        if name is not None:
            _check_column(what, name, columns)
    if features is None:
        features = [name for name in columns if name not in (label, client)]
    if isinstance(features, str) or not features:
        raise InputError("features", features, "a list of columns")
    for name in features:
        _check_column("features", name, columns)
    table = np.stack([_numbers(frame, name) for name in features], axis=1).astype(np.float32)
    whose = None if client is None else np.asarray(frame[client])
    targets = _numbers(frame, label)
    return from_arrays(torch.from_numpy(table), targets, client=whose)


def from_tokens(
    sequences: Sequence[Sequence[int]],
    targets: Any,
    *,
    client: ArrayLike | None = None,
    length: int | None = None,
    pad: int = 0,
) -> ClientData:
    """Take texts as token ids: int64 of one length.

    Args:
        sequences: a list of ids for each text.
        targets: one for each text.
        client: whose each text is, as for `from_arrays`.
        length: of all; a longer text is cut. None: that of the longest.
        pad: the id behind a shorter text, up to the length.
    """
    lists = [np.asarray(ids) for ids in sequences]
    for number, ids in enumerate(lists):
        if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
            raise InputError(f"tokens of text {number}", ids, "must be a list of whole numbers")
    most = max((len(ids) for ids in lists), default=0)
    length = most if length is None else length
    length = whole_number(length, field="length")
    table = np.full((len(lists), length), pad, dtype=np.int64)
    for row, ids in zip(table, lists, strict=True):
        row[: len(ids)] = ids[:length]
    return from_arrays(torch.from_numpy(table), targets, client=client)


@dataclass(frozen=True, eq=False)
class Columns:
    """Rows with named columns, such as a Hugging Face `Dataset`, as (input, target) items.

    Attributes:
        inputs: the column to learn from; several as a tuple for forward(a, b); or by the names that
            the model's forward has: {"x": "image"}.
        label: the column to learn.
        transform: makes tensors, arrays or numbers of an input; without it images become bytes
            (channels, height, width), and lists arrays.
    """

    dataset: Any
    inputs: Names
    label: str
    transform: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        """A column that is not there is named."""
        _check_rows(self.dataset)
        columns = list(self.dataset.column_names)
        named = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        for name in named.values() if isinstance(named, Mapping) else named:
            _check_column("inputs", name, columns)
        _check_column("label", self.label, columns)
        kind = getattr(self.dataset, "format", {}).get("type")
        if self.transform is None and kind not in (None, "custom"):
            # As arrays images would come with their channels last, and nothing would say so.
            object.__setattr__(self, "dataset", self.dataset.with_format(None))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        row = self.dataset[index]
        change = _plain if self.transform is None else (lambda value: value)
        given: Any
        if isinstance(self.inputs, str):
            given = change(row[self.inputs])
        elif isinstance(self.inputs, Mapping):
            given = {argument: change(row[name]) for argument, name in self.inputs.items()}
        else:
            given = tuple(change(row[name]) for name in self.inputs)
        return given if self.transform is None else self.transform(given), row[self.label]


def from_huggingface(
    dataset: Any,
    *,
    inputs: Names,
    label: str,
    client: str | None = None,
    transform: Callable[[Any], Any] | None = None,
    mean: Scale = 0.0,
    std: Scale = 1.0,
) -> ClientData:
    """Take a `datasets.Dataset`, read once.

    Args:
        dataset: rows with named columns.
        inputs, label, transform: as in `Columns`.
        client: the column with the client of each row: every value is one, in sorted order.
        mean, std: of images without a transform, which stay bytes: see `Pixels`.

    For a transform that stays random give `Fresh(Columns(...))` to `sdfeel.train`.
    """
    columns = Columns(dataset, inputs, label, transform)
    whose = None
    if client is not None:
        _check_column("client", client, list(dataset.column_names))
        whose = np.asarray(dataset[client])
    store = _as_pixels(ClientData.from_datasets([columns]), transform, mean, std)
    return _by_client(store, whose)


def from_flower(
    partitioner: Any,
    *,
    inputs: Names,
    label: str,
    transform: Callable[[Any], Any] | None = None,
    mean: Scale = 0.0,
    std: Scale = 1.0,
    split: str = "train",
) -> ClientData:
    """Take the partitions of a partitioner of Flower Datasets, a client each.

    Args:
        partitioner: one whose `dataset` is set, or a `FederatedDataset`.
        split: of the latter.
        inputs, label, transform, mean, std: as for `from_huggingface`.
    """
    try:
        parts = _parts(partitioner, split)
    except (AttributeError, ValueError, KeyError) as problem:  # what it says of its own settings
        reason = " ".join(str(problem).split())
        raise InputError("partitioner", type(partitioner).__name__, reason) from None
    listed = [Columns(part, inputs, label, transform) for part in parts]
    return _as_pixels(ClientData.from_datasets(listed), transform, mean, std)


def _parts(partitioner: Any, split: str) -> list[Any]:
    if isinstance(getattr(partitioner, "partitioners", None), Mapping):
        partitioner.load_partition(0, split)  # only then it knows how many there are
        count = partitioner.partitioners[split].num_partitions
        return [partitioner.load_partition(number, split) for number in range(count)]
    if not hasattr(partitioner, "load_partition"):
        raise ValueError("give a partitioner of flwr_datasets, or a FederatedDataset")
    return [partitioner.load_partition(n) for n in range(partitioner.num_partitions)]


def _check_rows(dataset: Any) -> None:
    """Refuse what has no named columns, length and rows by number: several splits, or a stream."""
    if isinstance(dataset, Mapping):
        splits = ", ".join(repr(name) for name in dataset)
        raise InputError("dataset", type(dataset).__name__, f"has splits; give one of {splits}")
    if not all(hasattr(dataset, n) for n in ("column_names", "__len__", "__getitem__")):
        remedy = "needs named columns, a length and rows by number, as a datasets.Dataset has"
        raise InputError("dataset", type(dataset).__name__, remedy)


def _as_pixels(
    store: ClientData, transform: Callable[[Any], Any] | None, mean: Scale, std: Scale
) -> ClientData:
    """Images that nobody transformed stay bytes, with their scale."""
    given = store.inputs
    if transform is None and isinstance(given, torch.Tensor) and given.dtype == torch.uint8:
        pixels = Pixels(given, _numbers_of(mean), _numbers_of(std))
        return ClientData(pixels, store.targets, store.offsets)
    if (mean, std) != (0.0, 1.0):
        raise InputError("mean", mean, "is for images without a transform; scale them there")
    return store


def _numbers_of(scale: Scale) -> float | tuple[float, ...]:
    return scale if isinstance(scale, int | float) else tuple(scale)


def _by_client(store: ClientData, client: ArrayLike | None) -> ClientData:
    """A client for each value, in sorted order, with its rows in theirs."""
    if client is None:
        return store
    whose, size = np.asarray(client), rows(store.inputs)
    if whose.shape != (size,):
        raise InputError("client", list(whose.shape), f"must have a value for each of {size} rows")
    try:
        _, number = np.unique(whose, return_inverse=True)
    except TypeError:
        raise InputError("client", whose, "has values of several kinds, or none at all") from None
    parts = np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1])
    return ClientData.from_partition(store.inputs, store.targets, parts)


def _numbers(frame: Any, name: Hashable) -> NDArray[Any]:
    """A column of a DataFrame; anything but numbers is named, and so is what is missing."""
    column = frame[name]
    values = np.array(column)  # a copy: what pandas gives cannot be written to
    if values.dtype.kind not in "iufb":
        remedy = "must be numbers; categories become class numbers by .astype('category').cat.codes"
        raise InputError(f"column {name!r}", str(column.dtype), remedy)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        value = "missing" if np.isnan(values[row]) else float(values[row])
        raise InputError(f"column {name!r}, row {row}", value, "fill or drop it first")
    return values


def _plain(value: Any) -> Any:
    """An image as bytes (channels, height, width), a list as an array."""
    if hasattr(value, "getbands"):  # a picture of Pillow
        pixels = np.array(value)
        if pixels.dtype != np.uint8:
            raise InputError("image", value.mode, "has no bytes; give a transform")
        return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    return np.asarray(value) if isinstance(value, list) else value


def _check_column(what: str, name: Hashable, columns: Sequence[Hashable]) -> None:
    if name not in columns:
        raise InputError(what, name, closest(str(name), [str(column) for column in columns]))
