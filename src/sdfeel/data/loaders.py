"""`DataLoader` as a client's data: its samples in a fixed order, whatever it would draw."""

from __future__ import annotations

from typing import Any

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    default_collate,
)

from sdfeel.errors import InputError
from sdfeel.trees import mapped


def unwrapped(dataset: Any) -> Any:
    """The samples that a loader goes through, as a map-style dataset; anything else as it is.

    What is in a batch is decided by the run: (seed, client, k). Of the loader it has the batch size
    (`ClientSource.batch_size`), and the samples that its sampler picks when it is read.
    """
    if not isinstance(dataset, DataLoader):
        return dataset
    inner = dataset.dataset
    if isinstance(inner, IterableDataset):
        remedy = "a DataLoader of a map-style dataset: it is drawn from"
        raise InputError("data", type(inner).__name__, remedy)
    sampler = dataset.sampler
    if isinstance(sampler, SubsetRandomSampler):
        inner = Subset(inner, sorted(sampler.indices))
    elif not isinstance(sampler, SequentialSampler | RandomSampler):
        inner = Subset(inner, list(sampler))
    if dataset.collate_fn is default_collate:
        return inner
    return _Collated(inner, dataset.collate_fn)


class _Collated:
    """A dataset of the samples that a loader makes."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        self._dataset, self._collate = dataset, collate

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError(index)
        return mapped(lambda tensor: tensor[0], self._collate([self._dataset[index]]))
