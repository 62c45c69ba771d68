"""The clients' data before it is read: how much each holds, and any part of it on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from sdfeel.data.clients import ClientData, count_samples, refuse_table
from sdfeel.data.fresh import Fresh
from sdfeel.data.partitions import partition as make_partition
from sdfeel.data.reading import is_pair
from sdfeel.errors import InputError

SHARED_OUT = "one dataset for all is shared out by partition=, such as partition='iid'"


@dataclass
class ClientSource:
    """The data that a user gives: a `ClientData`, a dataset per client, or one with a partition.

    A rank that holds some of the clients takes those and forgets the others.
    """

    given: Any
    parts: Sequence[Any] | None
    samples: NDArray[np.int64]
    loaders: frozenset[int] = frozenset()  # batch sizes of the `DataLoader`s among it

    @classmethod
    def of(
        cls, given: Any, partition: str | Sequence[Any] | None, clients: int, seed: int
    ) -> ClientSource:
        """Look at what was given; the data of each client is read when it is taken.

        Args:
            given: the data, as for `sdfeel.train`.
            partition: the name of one, or a list of row numbers for each client.
            clients: how many the network has.
            seed: what a named partition is drawn from.
        """
        if isinstance(given, ClientSource):
            return given
        refuse_table("client_datasets", given)
        loaders = _loaders(given)
        if partition is None:
            is_store = isinstance(given, ClientData)
            samples = given.samples if is_store else _lengths(given, clients)
            return cls(given, None, samples, loaders)
        if not isinstance(partition, str) and len(partition) != clients:
            remedy = f"the network has {clients} clients"
            raise InputError("partition", f"{len(partition)} parts", remedy)
        whole = given if isinstance(given, ClientData) else ClientData.from_datasets([given])
        if isinstance(partition, str):
            partition = make_partition(partition, _labels(given, whole, partition), clients, seed)
        samples = np.array([len(part) for part in partition])
        if isinstance(whole, ClientData) and whole.index is not None:
            whole = ClientData(*whole.stored(slice(None)), np.array([0, len(whole.index)]))
        if not whole.fresh:
            return cls(whole, partition, samples, loaders)
        if len(whole.fresh) > 1 or whole.fresh[0] is None:
            raise InputError("partition", partition, "of fresh data: give one Fresh(dataset)")
        inner = whole.fresh[0].dataset
        parts = [Fresh(Subset(inner, [int(i) for i in part])) for part in partition]
        return cls(parts, None, samples, loaders)

    @property
    def batch_size(self) -> int | None:
        """The batch size of the loaders that were given; None without any."""
        if len(self.loaders) > 1:
            remedy = "loaders of several batch sizes: batch_size= is needed, one for all clients"
            raise InputError("batch_size", sorted(self.loaders), remedy)
        return next(iter(self.loaders), None)

    def take(self, clients: Sequence[int] | None = None) -> ClientData:
        """The data of these clients, in this order; of all for None."""
        if self.parts is not None:
            store = self.given.inputs, self.given.targets
            if clients is None:
                return ClientData.views(*store, self.parts)
            # A rank takes copies of what its own clients hold, and forgets the rest.
            return ClientData.from_partition(*store, [self.parts[i] for i in clients])
        if isinstance(self.given, ClientData):
            return self.given if clients is None else self.given.select(clients)
        chosen = self.given if clients is None else [self.given[i] for i in clients]
        return ClientData.from_datasets(chosen)

    def first(self, count: int) -> ClientData:
        """The first samples of client 0; no others are read."""
        if self.parts is not None:
            rows = self.parts[0][:count]
            return ClientData.from_partition(self.given.inputs, self.given.targets, [rows])
        if isinstance(self.given, ClientData):
            size = min(count, int(self.samples[0]))
            return ClientData(*self.given.stored(slice(size)), np.array([0, size]))
        return ClientData.head(self.given[0], count)

    def forget(self) -> None:
        """Let go of the data that was given: what was taken of it is a copy."""
        self.given = None


def _loaders(given: Any) -> frozenset[int]:
    is_list = isinstance(given, list | tuple)
    each = [given] if isinstance(given, DataLoader) else given if is_list else ()
    sizes = (loader.batch_size for loader in each if isinstance(loader, DataLoader))
    return frozenset(size for size in sizes if size is not None)


def _labels(given: Any, whole: ClientData, partition: str) -> NDArray[np.int64]:
    """The labels by which one dataset is shared out."""
    if not isinstance(whole.targets, Tensor):
        raise InputError("partition", partition, "goes by labels; give row numbers instead")
    if isinstance(given, list) and whole.targets.ndim > 1:
        remedy = (
            "shares out one dataset by class numbers; leave it out where each client has its own, "
            "as in a list of pairs"
        )
        raise InputError("partition", partition, remedy)
    if partition == "iid":  # goes by no label
        return np.zeros(len(whole.targets), dtype=np.int64)
    if whole.targets.ndim > 1 or whole.targets.is_floating_point():
        remedy = "goes by class numbers, one for each sample; iid does not, nor do row numbers"
        raise InputError("partition", partition, remedy)
    labels: NDArray[np.int64] = whole.targets.numpy()
    return labels


def _lengths(datasets: Any, clients: int) -> NDArray[np.int64]:
    if is_pair(datasets):
        raise InputError("client_datasets", "one pair (inputs, targets)", SHARED_OUT)
    if not isinstance(datasets, Sequence):
        remedy = f"a list with a dataset for each client; {SHARED_OUT}"
        raise InputError("client_datasets", type(datasets).__name__, remedy)
    if len(datasets) != clients:
        remedy = f"the network has {clients} clients, a dataset for each; {SHARED_OUT}"
        raise InputError("client_datasets", len(datasets), remedy)
    return np.array([count_samples(dataset, client) for client, dataset in enumerate(datasets)])
