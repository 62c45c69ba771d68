"""What is random is a function of (seed, client, k): no state to save, resume and sharding exact.

Philox4x32-10 (Salmon et al., SC 2011), written over numpy arrays so that the batches of all
clients for many iterations come from one call. The fast engine has the same function in C; a test
holds the two equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# What a number is drawn for: the last word of the counter, so that no two purposes ever share one.
BATCH = 0
PARTICIPATION = 1
MODEL = 2  # inside the model: dropout
MESSAGE = 3  # rounding of what is sent; and all above: a word for every stream of messages
AUGMENTATION = 2**32 - 1  # of samples that are read anew; no stream of messages gets there

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

Words = NDArray[np.uint64]


def philox4x32(
    c0: Words, c1: Words, c2: Words, c3: Words, seed: int
) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit random words (held in uint64) for every counter (c0, c1, c2, c3)."""
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (
            (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _words(
    seed: int, clients: NDArray[np.int64], k: NDArray[np.int64], purpose: int, count: int
) -> Words:
    """`count` words for every pair (client, k): shape (len(clients), len(k), count)."""
    blocks = -(-count // 4)
    shape = (len(clients), len(k), blocks)
    c0 = np.broadcast_to(np.arange(blocks, dtype=np.uint64), shape)
    c1 = np.broadcast_to(clients.astype(np.uint64)[:, None, None], shape)
    c2 = np.broadcast_to(k.astype(np.uint64)[None, :, None], shape)
    c3 = np.full(shape, purpose, dtype=np.uint64)
    words = np.stack(philox4x32(c0, c1, c2, c3, seed), axis=-1)
    return words.reshape(len(clients), len(k), blocks * 4)[..., :count]


def uniforms(seed: int, clients: NDArray[np.int64], k: int, purpose: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every client at iteration k."""
    words = _words(seed, clients, np.array([k]), purpose, 1)[:, 0, 0]
    return words.astype(np.float64) / 2.0**32


def seeds(
    seed: int, clients: NDArray[np.int64], k: NDArray[np.int64], purpose: int
) -> NDArray[np.uint64]:
    """Seeds of 64 bits, (clients x iterations), for a generator that somebody else wrote."""
    words = _words(seed, clients, k, purpose, 2)
    return words[..., 0] | (words[..., 1] << _SHIFT)


def draw_batches(
    seed: int,
    clients: NDArray[np.int64],
    samples: NDArray[np.int64],
    k: NDArray[np.int64],
    batch_size: int,
) -> NDArray[np.int64]:
    """The mini-batches xi_k^(i) of eq. (2): shape (clients, iterations, batch_size).

    Each is a subset of {0, ..., samples - 1} drawn uniformly without replacement by Floyd's method
    with word t of (seed, client, k). Every client must hold more than `batch_size` samples: at or
    below it a batch is the client's whole data and nothing is drawn.
    """
    words = _words(seed, clients, k, BATCH, batch_size)
    chosen = np.empty(words.shape, dtype=np.int64)
    for t in range(batch_size):
        top = samples[:, None] - batch_size + t
        drawn = ((words[..., t] * (top + 1).astype(np.uint64)) >> _SHIFT).astype(np.int64)
        taken = (chosen[..., :t] == drawn[..., None]).any(axis=-1)
        chosen[..., t] = np.where(taken, top, drawn)
    return chosen
