"""Who holds which samples. Every partition assigns every sample to exactly one client.

A partition takes the labels, the number of clients and a generator, and gives the (sorted) sample
indices of every client; the same generator state gives the same partition.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdfeel.errors import InputError, closest
from sdfeel.validation import Count, Positive, checked, whole, whole_number

Indices = NDArray[np.int64]
NotNegative = Annotated[int, whole(0)]

MAX_DRAWS = 10_000  # redraws before a minimum counts as out of reach: a few seconds


@checked("")
class Iid:
    """A shuffle cut into parts whose sizes differ by one at most."""

    def __call__(self, labels: Indices, clients: int, rng: np.random.Generator) -> list[Indices]:
        return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]


@checked("")
class Shards:
    """Samples sorted by label, cut into equal shards that are dealt at random (McMahan 2017)."""

    shards_per_client: Count = 2

    def __call__(self, labels: Indices, clients: int, rng: np.random.Generator) -> list[Indices]:
        count = clients * self.shards_per_client
        _check_enough("shards_per_client", self.shards_per_client, clients, len(labels))
        shuffled = rng.permutation(len(labels))
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        cut = np.array_split(by_label, count)
        dealt = rng.permutation(count).reshape(clients, self.shards_per_client)
        return [np.sort(np.concatenate([cut[shard] for shard in hand])) for hand in dealt]


@checked("")
class Dirichlet:
    """A partition that draws the clients' shares of every class from Dirichlet(concentration).

    Redrawn until every client has `min_samples`: a client without data could not take part.
    """

    concentration: Positive = 0.5
    min_samples: NotNegative = 1
    is_capped: ClassVar[bool] = False  # whether a fair share N/C closes a client

    def __call__(self, labels: Indices, clients: int, rng: np.random.Generator) -> list[Indices]:
        _check_enough("min_samples", self.min_samples, clients, len(labels))
        _, classes = np.unique(labels, return_inverse=True)
        sizes = np.bincount(classes)
        for _ in range(MAX_DRAWS):
            counts = self._counts(sizes, clients, rng)
            if counts is not None and counts.sum(axis=0).min() >= self.min_samples:
                return _deal(classes, counts, rng)
        remedy = (
            f"not reached by {clients} clients in {MAX_DRAWS:,} draws at concentration "
            f"{self.concentration}: lower it, use fewer clients or a larger concentration"
        )
        raise InputError("min_samples", self.min_samples, remedy)

    def _counts(self, sizes: Indices, clients: int, rng: np.random.Generator) -> Indices | None:
        """Return how many samples of each class each client gets: shape (classes, clients).

        None if the draw leaves a class to nobody (every open client's share underflowed to zero).
        """
        counts = np.zeros((len(sizes), clients), dtype=np.int64)
        for row, size in enumerate(sizes):
            shares = rng.dirichlet(np.full(clients, self.concentration))
            if self.is_capped:
                shares[counts.sum(axis=0) * clients >= sizes.sum()] = 0.0
            upto = np.cumsum(shares)
            if not upto[-1] > 0:
                return None
            # Divided by the last sum, which makes it exactly 1: no rounding falls to the last one.
            cuts = (upto / upto[-1] * size).astype(np.int64)
            counts[row] = np.diff(cuts, prepend=0)
        return counts


@checked("")
class FedMA(Dirichlet):
    """The split of FedMA (Wang et al. 2020), which the paper follows.

    As `Dirichlet`, but classes are dealt one after the other, a client that already holds its fair
    share N/C gets nothing more, and all is redrawn until every client has `min_samples`.
    """

    min_samples: NotNegative = 10
    is_capped: ClassVar[bool] = True


PARTITIONS: dict[str, type[Iid | Shards | Dirichlet]] = {
    "iid": Iid,
    "shards": Shards,
    "dirichlet": Dirichlet,
    "dirichlet-fedma": FedMA,
}


def partition(
    name: str, labels: ArrayLike, clients: int, seed: int, **options: Any
) -> list[Indices]:
    """Share out samples by the partition of that name in `PARTITIONS`, drawn from `seed`.

    Args:
        name: of `PARTITIONS`.
        labels: class numbers, one for each sample.
        clients: how many share the samples.
        seed: what is random follows from it.
        options: fields of the partition, such as `concentration=0.1`.

    Returns:
        The row numbers of every client.

    Example:
        >>> from sdfeel.data import partition
        >>> [len(rows) for rows in partition("iid", [0, 1, 0, 1, 0], clients=2, seed=0)]
        [3, 2]
    """
    if name not in PARTITIONS:
        raise InputError("partition", name, closest(name, PARTITIONS))
    clients, seed = whole_number(clients, field="clients"), whole_number(seed, 0, field="seed")
    known = [field.name for field in fields(PARTITIONS[name])]
    for option in options.keys() - set(known):
        remedy = closest(option, known) if known else "it takes no options"
        raise InputError(f"option {option} of partition {name}", options[option], remedy)
    share_out = PARTITIONS[name](**options)
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise InputError("labels", array, "must be a vector of integers, one per sample")
    if clients > len(array):
        raise InputError("clients", clients, f"there are only {len(array)} samples to share out")
    return share_out(array.astype(np.int64), clients, np.random.default_rng(seed))


def _check_enough(field: str, each: int, clients: int, samples: int) -> None:
    if clients * each > samples:
        remedy = f"{clients} clients would need {clients * each} samples, there are {samples}"
        raise InputError(field, each, remedy)


def _deal(classes: Indices, counts: Indices, rng: np.random.Generator) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(counts.shape[1])]
    for label, row in enumerate(counts):
        members = rng.permutation(np.flatnonzero(classes == label))
        for part, piece in zip(parts, np.split(members, np.cumsum(row)[:-1]), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]
