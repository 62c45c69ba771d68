"""The clients' data before it is read: how much each holds, and any part of it on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset

from sdfeel.data.clients import ClientData, count_samples
from sdfeel.data.fresh import Fresh
from sdfeel.data.partitions import partition as make_partition
from sdfeel.errors import InputError

__all__ = ["ClientSource"]


@dataclass
class ClientSource:
    """What a user gives as data: a `ClientData`, a dataset per client, or one with a partition.

    A rank that holds some of the clients takes those and forgets the others.
    """

    given: Any
    parts: Sequence[Any] | None
    samples: NDArray[np.int64]

    @classmethod
    def of(
        cls, given: Any, partition: str | Sequence[Any] | None, clients: int, seed: int
    ) -> ClientSource:
        """`partition` is the name of one, or a list of row numbers for each client."""
        if isinstance(given, ClientSource):
            return given
        if isinstance(given, ClientData) and partition is None:
            return cls(given, None, given.samples)
        if partition is not None and not isinstance(partition, str) and len(partition) != clients:
            raise InputError(
                "partition", f"{len(partition)} parts", f"the network has {clients} clients"
            )
        if partition is None:
            return cls(given, None, _lengths(given, clients))
        whole = given if isinstance(given, ClientData) else ClientData.from_datasets([given])
        if isinstance(partition, str):
            if not isinstance(whole.targets, Tensor):
                raise InputError("partition", partition, "goes by labels; give row numbers instead")
            if isinstance(given, list) and whole.targets.ndim > 1:
                raise InputError(
                    "partition",
                    partition,
                    "shares out one dataset by class numbers; leave it out where each client has "
                    "its own, as in a list of pairs",
                )
            partition = make_partition(partition, whole.targets.numpy(), clients, seed)
        samples = np.array([len(part) for part in partition])
        if whole.fresh:
            if len(whole.fresh) > 1 or whole.fresh[0] is None:
                raise InputError("partition", partition, "of fresh data: give one Fresh(dataset)")
            inner = whole.fresh[0].dataset
            parts = [Fresh(Subset(inner, [int(i) for i in part])) for part in partition]
            return cls(parts, None, samples)
        return cls(whole, partition, samples)

    def take(self, clients: Sequence[int] | None = None) -> ClientData:
        """The data of these clients, in this order; of all for None."""
        if self.parts is not None:
            parts = self.parts if clients is None else [self.parts[i] for i in clients]
            return ClientData.from_partition(self.given.inputs, self.given.targets, parts)
        if isinstance(self.given, ClientData):
            return self.given if clients is None else self.given.select(clients)
        chosen = self.given if clients is None else [self.given[i] for i in clients]
        return ClientData.from_datasets(chosen)

    def forget(self) -> None:
        """Let go of the data that was given: what was taken of it is a copy."""
        self.given = None


def _lengths(datasets: Any, clients: int) -> NDArray[np.int64]:
    if not isinstance(datasets, Sequence):
        raise InputError(
            "client_datasets",
            type(datasets).__name__,
            "a list with a dataset for each client, or one dataset and partition=",
        )
    if len(datasets) != clients:
        raise InputError("client_datasets", len(datasets), f"the network has {clients} clients")
    try:
        lengths = np.array([count_samples(dataset) for dataset in datasets])
    except TypeError:
        raise InputError(
            "client_datasets",
            type(datasets[0]).__name__,
            "map-style datasets: with a length and items by index",
        ) from None
    for client in np.flatnonzero(lengths == 0):
        raise InputError(f"data of client {client}", [], "every client needs a sample or more")
    return lengths
