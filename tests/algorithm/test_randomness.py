from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfeel.algorithm.randomness import BATCH, PARTICIPATION, draw_batches, philox4x32, uniforms

seeds = st.integers(0, 2**64 - 1)


def words(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[str]:
    arrays = (np.array([word], dtype=np.uint64) for word in counter)
    return [f"{int(word[0]):08x}" for word in philox4x32(*arrays, seed=key[0] | key[1] << 32)]


@pytest.mark.parametrize(
    ("counter", "key", "known"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF, 0xFFFFFFFF),
            "408f276d 41c83b0e a20bc7c6 6d5451fd",
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], known: str
) -> None:
    """The vectors of the generator's authors (Random123, kat_vectors)."""
    assert words(counter, key) == known.split()


@given(seeds, st.integers(1, 12), st.integers(1, 40), st.integers(1, 9))
def test_batches_are_subsets_without_repeats(seed: int, batch: int, more: int, count: int) -> None:
    clients = np.arange(count)
    samples = batch + more + clients % 3
    drawn = draw_batches(seed, clients, samples, np.arange(1, 6), batch)
    assert drawn.shape == (count, 5, batch)
    assert (drawn >= 0).all()
    assert (drawn < samples[:, None, None]).all()
    assert all(len(set(row)) == batch for row in drawn.reshape(-1, batch).tolist())


@given(seeds, st.permutations(range(6)), st.integers(1, 50))
def test_a_batch_depends_on_seed_client_and_iteration_only(
    seed: int, order: list[int], first: int
) -> None:
    """Not on who else draws, nor in which order or for how many iterations at once."""
    samples = np.array([20, 30, 25, 40, 21, 33])
    ks = np.arange(first, first + 4)
    together = draw_batches(seed, np.arange(6), samples, ks, 7)
    for client in order:
        for column, k in enumerate(ks):
            alone = draw_batches(seed, np.array([client]), samples[[client]], np.array([k]), 7)
            np.testing.assert_array_equal(alone[0, 0], together[client, column])


def test_batches_differ_between_seeds_clients_and_iterations() -> None:
    def batch(seed: int, client: int, k: int) -> tuple[int, ...]:
        row = draw_batches(seed, np.array([client]), np.array([10_000]), np.array([k]), 8)[0, 0]
        return tuple(row.tolist())

    assert len({batch(*which) for which in np.ndindex(5, 5, 5)}) == 125
    assert batch(2**32, 0, 1) != batch(0, 0, 1)  # the seed's upper half counts too


def test_every_subset_is_equally_likely() -> None:
    """Chi-squared over all subsets of 3 out of 6; with this seed for ever the same draw."""
    drawn = draw_batches(1, np.arange(200), np.full(200, 6), np.arange(1, 101), 3)
    counts = Counter(tuple(sorted(row)) for row in drawn.reshape(-1, 3).tolist())
    expected = 20_000 / 20
    chi = sum((counts[subset] - expected) ** 2 / expected for subset in combinations(range(6), 3))
    assert chi < 43.8  # the 99.9th percentile of 19 degrees of freedom


def test_uniforms_are_uniform_and_apart_from_batches() -> None:
    numbers = np.stack([uniforms(3, np.arange(100), k, PARTICIPATION) for k in range(200)])
    assert ((numbers >= 0) & (numbers < 1)).all()
    histogram, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert ((histogram - 1000) ** 2 / 1000).sum() < 43.8
    assert not np.intersect1d(numbers[0], uniforms(3, np.arange(100), 0, BATCH)).size
