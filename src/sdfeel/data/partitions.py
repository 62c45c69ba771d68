"""Who holds which samples. Every function assigns every sample to exactly one client.

Each takes the labels, the number of clients and a generator, and gives the (sorted) sample indices
of every client; the same generator state gives the same partition.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdfeel.errors import InputError, closest

__all__ = ["PARTITIONS", "dirichlet", "dirichlet_fedma", "iid", "partition", "shards"]

Indices = NDArray[np.int64]
Labels = NDArray[np.int64]

MAX_DRAWS = 10_000  # redraws before a minimum counts as out of reach: a few seconds


def iid(labels: ArrayLike, clients: int, rng: np.random.Generator) -> list[Indices]:
    """A shuffle cut into parts whose sizes differ by one at most."""
    checked = _checked(labels, clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(checked)), clients)]


def shards(
    labels: ArrayLike, clients: int, rng: np.random.Generator, *, shards_per_client: int = 2
) -> list[Indices]:
    """Samples sorted by label, cut into equal shards that are dealt at random (McMahan 2017)."""
    checked = _checked(labels, clients)
    _positive("shards_per_client", shards_per_client)
    count = clients * shards_per_client
    if count > len(checked):
        raise InputError(
            "shards_per_client",
            shards_per_client,
            f"{clients} clients would need {count} samples, there are {len(checked)}",
        )
    shuffled = rng.permutation(len(checked))
    by_label = shuffled[np.argsort(checked[shuffled], kind="stable")]
    cut = np.array_split(by_label, count)
    dealt = rng.permutation(count).reshape(clients, shards_per_client)
    return [np.sort(np.concatenate([cut[shard] for shard in hand])) for hand in dealt]


def dirichlet(
    labels: ArrayLike,
    clients: int,
    rng: np.random.Generator,
    *,
    concentration: float = 0.5,
    min_samples: int = 1,
) -> list[Indices]:
    """For every class, the shares of the clients are one draw of Dirichlet(concentration).

    Redrawn until every client has `min_samples`: a client without data could not take part.
    """
    return _by_shares(labels, clients, rng, concentration, min_samples, capped=False)


def dirichlet_fedma(
    labels: ArrayLike,
    clients: int,
    rng: np.random.Generator,
    *,
    concentration: float = 0.5,
    min_samples: int = 10,
) -> list[Indices]:
    """The split of FedMA (Wang et al. 2020), which the paper follows.

    As `dirichlet`, but classes are dealt one after the other, a client that already holds its fair
    share N/C gets nothing more, and all is redrawn until every client has `min_samples`.
    """
    return _by_shares(labels, clients, rng, concentration, min_samples, capped=True)


PARTITIONS: dict[str, Callable[..., list[Indices]]] = {
    "iid": iid,
    "shards": shards,
    "dirichlet": dirichlet,
    "dirichlet-fedma": dirichlet_fedma,
}


def partition(
    name: str, labels: ArrayLike, clients: int, seed: int, **options: object
) -> list[Indices]:
    """The partition of that name in `PARTITIONS`, drawn from `seed`."""
    if name not in PARTITIONS:
        raise InputError("partition", name, closest(name, PARTITIONS))
    if not _is_integer(seed) or seed < 0:
        raise InputError("seed", seed, "must be an integer, 0 or more")
    function = PARTITIONS[name]
    known = [
        p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    for option, value in options.items():
        if option not in known:
            remedy = closest(option, known) if known else "it takes no options"
            raise InputError(f"option {option} of partition {name}", value, remedy)
    return function(labels, clients, np.random.default_rng(seed), **options)


def _by_shares(
    labels: ArrayLike,
    clients: int,
    rng: np.random.Generator,
    concentration: float,
    min_samples: int,
    *,
    capped: bool,
) -> list[Indices]:
    checked = _checked(labels, clients)
    _check_shares(len(checked), clients, concentration, min_samples)
    _, classes = np.unique(checked, return_inverse=True)
    sizes = np.bincount(classes)
    for _ in range(MAX_DRAWS):
        counts = _draw_counts(sizes, clients, rng, concentration, capped=capped)
        if counts is not None and counts.sum(axis=0).min() >= min_samples:
            return _deal(classes, counts, rng)
    raise InputError(
        "min_samples",
        min_samples,
        f"not reached by {clients} clients in {MAX_DRAWS:,} draws at concentration "
        f"{concentration}: lower it, use fewer clients or a larger concentration",
    )


def _draw_counts(
    sizes: Indices, clients: int, rng: np.random.Generator, concentration: float, *, capped: bool
) -> Indices | None:
    """How many samples of each class each client gets: shape (classes, clients).

    None if the draw leaves a class to nobody (every open client's share underflowed to zero).
    """
    counts = np.zeros((len(sizes), clients), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    total = int(sizes.sum())
    for row, size in zip(counts, sizes, strict=True):
        shares = rng.dirichlet(np.full(clients, concentration))
        if capped:
            shares = np.where(held * clients < total, shares, 0.0)
        upto = np.cumsum(shares)
        if not upto[-1] > 0:
            return None
        # Dividing by the last sum makes it exactly 1, so that no rounding falls to the last client.
        cuts = (upto / upto[-1] * size).astype(np.int64)
        row[:] = np.diff(cuts, prepend=0)
        held += row
    return counts


def _deal(classes: Indices, counts: Indices, rng: np.random.Generator) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(counts.shape[1])]
    for label, row in enumerate(counts):
        members = rng.permutation(np.flatnonzero(classes == label))
        for part, piece in zip(parts, np.split(members, np.cumsum(row)[:-1]), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def _checked(labels: ArrayLike, clients: int) -> Labels:
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise InputError("labels", array, "must be a vector of integers, one per sample")
    _positive("clients", clients)
    if clients > len(array):
        raise InputError("clients", clients, f"there are only {len(array)} samples to share out")
    return array.astype(np.int64)


def _check_shares(samples: int, clients: int, concentration: float, min_samples: int) -> None:
    if not isinstance(concentration, int | float | np.number) or not 0 < concentration < math.inf:
        raise InputError("concentration", concentration, "must be a number above 0")
    if not _is_integer(min_samples) or min_samples < 0:
        raise InputError("min_samples", min_samples, "must be an integer, 0 or more")
    if clients * min_samples > samples:
        raise InputError(
            "min_samples",
            min_samples,
            f"{clients} clients would need {clients * min_samples} samples, there are {samples}",
        )


def _positive(field: str, value: int) -> None:
    if not _is_integer(value) or value < 1:
        raise InputError(field, value, "must be an integer, 1 or more")


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
