from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfeel.data import partitions
from sdfeel.data.partitions import PARTITIONS, Dirichlet, FedMA, Shards, partition
from sdfeel.errors import InputError

TEN = np.repeat(np.arange(10), 500)


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(PARTITIONS)),
    labels=st.lists(st.integers(-3, 12), min_size=60, max_size=400),
    clients=st.integers(1, 6),
    seed=st.integers(0, 2**64),
)
def test_every_sample_is_assigned_exactly_once(
    name: str, labels: list[int], clients: int, seed: int
) -> None:
    options = {"min_samples": 0} if name.startswith("dirichlet") else {}
    parts = partition(name, np.array(labels), clients, seed, **options)
    assert len(parts) == clients
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    again = partition(name, np.array(labels), clients, seed, **options)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))


@settings(deadline=None, max_examples=30)
@given(
    concentration=st.floats(1e-3, 100),
    clients=st.integers(2, 40),
    classes=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_fedma_gives_nothing_more_to_who_holds_the_fair_share(
    concentration: float, clients: int, classes: int, seed: int
) -> None:
    labels = np.repeat(np.arange(classes), 97)
    rng = np.random.default_rng(seed)
    parts = FedMA(concentration, min_samples=0)(labels, clients, rng)
    counts = np.stack([np.bincount(labels[p], minlength=classes) for p in parts], axis=1)
    so_far = np.cumsum(counts, axis=0)
    full = so_far[:-1] * clients >= len(labels)
    assert (counts[1:][full] == 0).all()


def test_fedma_reaches_its_minimum_and_plain_dirichlet_leaves_nobody_empty() -> None:
    for seed in range(20):
        assert min(map(len, partition("dirichlet-fedma", TEN, 50, seed))) >= 10
        assert min(map(len, partition("dirichlet", TEN, 50, seed))) >= 1


def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution() -> None:
    """Of n clients at concentration a, a share has the mean 1/n, variance (n-1)/(n^2 (n a + 1))."""
    clients, concentration = 5, 0.5
    labels = np.repeat(np.arange(200), 1000)
    rng = np.random.default_rng(0)
    parts = Dirichlet(concentration)(labels, clients, rng)
    shares = np.stack([np.bincount(labels[p], minlength=200) for p in parts]) / 1000
    variance = (clients - 1) / clients**2 / (clients * concentration + 1)
    assert shares.mean(axis=1) == pytest.approx(np.full(clients, 1 / clients), abs=0.06)
    assert shares.var() == pytest.approx(variance, rel=0.1)


def test_iid_parts_are_even_and_mixed() -> None:
    parts = partition("iid", TEN, 7, 3)
    assert {len(part) for part in parts} == {714, 715}
    assert all(np.bincount(TEN[part]).min() > 40 for part in parts)


def test_shards_give_few_labels() -> None:
    parts = partition("shards", TEN, 50, 3)
    assert {len(part) for part in parts} == {100}
    assert max(len(np.unique(TEN[part])) for part in parts) <= 2
    rng = np.random.default_rng(0)
    single = Shards(shards_per_client=1)(TEN, 10, rng)
    assert {len(np.unique(TEN[part])) for part in single} == {1}


def test_a_partition_is_pinned_by_its_seed() -> None:
    """Results are compared across versions: the draws behind a seed never change."""
    rows = {name: partition(name, TEN, 7, 11) for name in PARTITIONS}
    text = json.dumps({name: [part.tolist() for part in rows[name]] for name in sorted(rows)})
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "a72359a2a2f94719"


def test_seeds_differ_and_parts_are_sorted() -> None:
    first, second = (partition("dirichlet-fedma", TEN, 10, seed) for seed in (0, 1))
    assert any(len(a) != len(b) for a, b in zip(first, second, strict=True))
    assert all((np.diff(part) > 0).all() for part in first)


@pytest.mark.parametrize(
    ("name", "clients", "options", "field"),
    [
        ("iid", 0, {}, "clients"),
        ("iid", 5001, {}, "clients"),
        ("iid", True, {}, "clients"),
        ("shards", 2501, {}, "shards_per_client"),
        ("shards", 5, {"shards_per_client": 0}, "shards_per_client"),
        ("dirichlet", 5, {"concentration": 0}, "concentration"),
        ("dirichlet", 5, {"concentration": float("nan")}, "concentration"),
        ("dirichlet", 5, {"concentration": float("inf")}, "concentration"),
        ("dirichlet", 5, {"concentration": "half"}, "concentration"),
        ("dirichlet", 5, {"min_samples": -1}, "min_samples"),
        ("dirichlet-fedma", 501, {}, "min_samples"),
        ("dirichlet-fedma", 5, {"alpha": 1}, "option alpha of partition dirichlet-fedma"),
        ("iid", 5, {"concentration": 1}, "option concentration of partition iid"),
        ("dirichlet-fdma", 5, {}, "partition"),
    ],
)
def test_mistakes_are_named(
    name: str, clients: int, options: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as caught:
        partition(name, TEN, clients, 0, **options)
    assert caught.value.field == field


@pytest.mark.parametrize("labels", [TEN.reshape(2, -1), TEN / 2, ["a", "b"]])
def test_labels_must_be_a_vector_of_integers(labels: object) -> None:
    with pytest.raises(InputError, match="labels"):
        partition("iid", labels, 2, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_seeds_must_be_integers(seed: int) -> None:
    with pytest.raises(InputError, match="seed"):
        partition("iid", TEN, 2, seed)


def test_a_minimum_out_of_reach_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MAX_DRAWS", 50)
    with pytest.raises(InputError, match="not reached by 100 clients in 50 draws"):
        partition("dirichlet", TEN, 100, 0, concentration=0.01, min_samples=40)
