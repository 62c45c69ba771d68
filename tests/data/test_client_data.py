from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from sdfeel.data import ClientData, ClientSource
from sdfeel.errors import InputError


class Items(Dataset[Any]):
    """A map-style dataset of whatever it is given, which counts how often it is read."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.reads = 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.items[index]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield X[0], 0


X = torch.arange(24.0).reshape(12, 2)
Y = torch.arange(12)


def assert_same(store: ClientData, other: ClientData) -> None:
    assert torch.equal(store.inputs, other.inputs)
    assert torch.equal(store.targets, other.targets)
    assert store.offsets.tolist() == other.offsets.tolist()


def test_all_ways_in_give_the_same_store() -> None:
    whole = TensorDataset(X, Y)
    parts = [[3, 1], [0], [11, 5, 6]]
    expected = ClientData.from_partition(X, Y, parts)
    assert expected.offsets.tolist() == [0, 2, 3, 6]
    assert expected.offsets.dtype == np.int64
    assert expected.samples.tolist() == [2, 1, 3]
    assert expected.clients == 3
    assert expected.targets.tolist() == [3, 1, 0, 11, 5, 6]
    assert_same(ClientData.from_datasets([Subset(whole, p) for p in parts]), expected)
    assert_same(ClientData.from_datasets([TensorDataset(X[p], Y[p]) for p in parts]), expected)
    nested = [Subset(Subset(whole, p), range(len(p))) for p in parts]
    assert_same(ClientData.from_datasets(nested), expected)
    items = [Items([(X[i].numpy(), int(Y[i])) for i in p]) for p in parts]
    assert_same(ClientData.from_datasets(items), expected)
    assert [dataset.reads for dataset in items] == [4, 2, 6], "once, and a few again as a check"
    assert_same(ClientData.from_datasets([Subset(d, range(len(d))) for d in items]), expected)


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_select_takes_clients_in_the_given_order(sizes: list[int], data: st.DataObject) -> None:
    rows = np.arange(sum(sizes))
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    store = ClientData.from_partition(torch.from_numpy(rows), torch.from_numpy(rows), parts)
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=8))
    picked = store.select(chosen)
    assert picked.samples.tolist() == [sizes[i] for i in chosen]
    for new, old in enumerate(chosen):
        assert picked.client(new)[0].tolist() == parts[old].tolist()
    assert picked.inputs.is_contiguous()


def test_the_head_of_a_dataset_reads_no_more() -> None:
    """A model's shapes and FLOPs need a sample or two, however large the data is."""
    items = Items([(X[i], int(Y[i])) for i in range(12)])
    for dataset in (items, TensorDataset(X, Y), (X, Y), ClientData.from_datasets([(X, Y)])):
        head = ClientData.head(dataset, 2)
        assert torch.equal(head.inputs, X[:2])
        assert head.targets.tolist() == [0, 1]
    assert items.reads == 2
    assert ClientData.head((X[:1], Y[:1]), 2).samples.tolist() == [1]


@pytest.mark.parametrize("partition", [None, [[5, 4, 3], [0, 1]]])
def test_the_first_samples_of_a_source(partition: list[list[int]] | None) -> None:
    pairs = [(X[[5, 4, 3]], Y[[5, 4, 3]]), (X[[0, 1]], Y[[0, 1]])]
    stores = [pairs, ClientData.from_datasets(pairs)] if partition is None else [(X, Y)]
    for data in stores:
        source = ClientSource.of(data, partition, 2, 0)
        assert source.first(2).targets.tolist() == [5, 4]
        assert source.first(9).targets.tolist() == [5, 4, 3]


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("clients", [1, 2, 6])
def test_one_pair_for_all_clients_says_that_it_is_shared_out_by_partition(
    kind: type, clients: int
) -> None:
    """With two clients, too, where the pair is as long as the list of their data would be."""
    for pair in ((X, Y), (X.numpy(), pd.Series(Y.numpy())), ({"a": X, "b": X}, Y)):
        with pytest.raises(InputError, match=r"one pair \(inputs, targets\).*partition='iid'"):
            ClientSource.of(kind(pair), None, clients, 0)
    assert ClientSource.of(kind([(X, Y), (X, Y)]), None, 2, 0).samples.tolist() == [12, 12]


def test_too_many_datasets_name_the_other_way_as_well() -> None:
    """A list of samples looks like a list of clients."""
    with pytest.raises(InputError, match=r"= 3: the network has 2 clients.*partition="):
        ClientSource.of([(X[0], 0), (X[1], 1), (X[2], 0)], None, 2, 0)


def test_the_batch_size_of_loaders_is_known_where_they_agree() -> None:
    data = TensorDataset(X, Y)
    assert ClientSource.of([data, data], None, 2, 0).batch_size is None
    loaders = [DataLoader(data, batch_size=size) for size in (4, 4, 5)]
    assert ClientSource.of(loaders[:2], None, 2, 0).batch_size == 4
    assert ClientSource.of(tuple(loaders[:2]), None, 2, 0).batch_size == 4
    assert ClientSource.of(loaders[0], "iid", 3, 0).batch_size == 4
    assert ClientSource.of([loaders[0], data], None, 2, 0).batch_size == 4
    with pytest.raises(InputError, match=r"batch_size = \[4, 5\].*is needed"):
        assert ClientSource.of(loaders, None, 3, 0).batch_size


def test_a_subclass_with_its_own_items_is_read_by_item() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            x, y = super().__getitem__(index)
            return 2 * x, y

    store = ClientData.from_datasets([Doubled(X, Y)])
    assert torch.equal(store.inputs, 2 * X)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.uint8])
def test_inputs_keep_their_dtype_and_labels_become_int64(dtype: torch.dtype) -> None:
    store = ClientData.from_datasets([TensorDataset(X.to(dtype), Y.to(torch.uint8))])
    assert store.inputs.dtype == dtype
    assert store.targets.dtype == torch.int64
    assert ClientData.from_partition(X.to(dtype), Y.to(torch.int32), [[0]]).targets.dtype == Y.dtype


def test_numbers_and_real_targets() -> None:
    store = ClientData.from_datasets([Items([(1.5, 2.5), (3.5, 4.5)])])
    assert store.inputs.tolist() == [1.5, 3.5]
    assert store.targets.dtype == torch.float32


@pytest.mark.parametrize(
    ("datasets", "field"),
    [
        ([], "datasets"),
        ([TensorDataset(X, Y), TensorDataset(X[:0], Y[:0])], "data of client 1"),
        ([TensorDataset(X, Y), Items([])], "data of client 1"),
        ([TensorDataset(X, Y), TensorDataset(X[:, :1], Y)], "inputs of client 1"),
        ([TensorDataset(X, Y), TensorDataset(X.double(), Y)], "inputs of client 1"),
        ([TensorDataset(X, Y), TensorDataset(X, Y.float())], "targets of client 1"),
        ([Items([([1.0], 0), ([1.0, 2.0], 0)])], "data of client 0, sample 1"),
        ([Items([(X[0],)])], "data of client 0, sample 0"),
        ([Items([X[0]])], "data of client 0, sample 0"),
        ([Items([("text", 0)])], "data of client 0, sample 0"),
        ([Endless()], "data of client 0"),
    ],
)
def test_data_that_does_not_fit_names_the_client(datasets: list[Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        ClientData.from_datasets(datasets)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ([], "parts"),
        ([[0], []], "data of client 1"),
        ([[0], [12]], "indices of client 1"),
        ([[0], [-1]], "indices of client 1"),
        ([[0], [0.5]], "indices of client 1"),
        ([[[0]]], "indices of client 0"),
    ],
)
def test_partitions_that_do_not_fit_name_the_client(parts: list[Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        ClientData.from_partition(X, Y, parts)
    assert caught.value.field == field


def test_stores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="targets"):
        ClientData.from_partition(X, Y[:-1], [[0]])
    with pytest.raises(InputError, match="targets"):
        ClientData(X, Y[:-1], np.array([0, 12]))
    with pytest.raises(InputError, match="offsets"):
        ClientData(X, Y, np.array([0, 11]))
    store = ClientData(X, Y, np.array([0, 12]))
    with pytest.raises(InputError, match="client = 1"):
        store.client(1)
    with pytest.raises(InputError, match="clients"):
        store.select([])


def test_labels_outside_the_classes_name_the_client() -> None:
    store = ClientData.from_partition(X, Y, [[0, 1], [2, 11, 3]])
    store.check_labels(12)
    with pytest.raises(InputError, match=r"label of client 1, sample 1 = 11: must be in 0\.\.10"):
        store.check_labels(11)
    with pytest.raises(InputError, match="client 0, sample 0 = -1"):
        ClientData.from_partition(X, Y - 1, [[0]]).check_labels(12)
    with pytest.raises(InputError, match="must be integers"):
        ClientData.from_partition(X, Y.float(), [[0]]).check_labels(12)


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("as_numpy", [False, True])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_pair_of_arrays_is_a_client_s_data(kind: type, as_numpy: bool, samples: int) -> None:
    """Two samples too, where the pair is as long as a list of samples would be."""
    pair = (X[:samples].numpy(), Y[:samples].numpy()) if as_numpy else (X[:samples], Y[:samples])
    store = ClientData.from_datasets([kind(pair), TensorDataset(X[4:9], Y[4:9])])
    assert store.samples.tolist() == [samples, 5]
    assert torch.equal(store.client(0)[0], X[:samples])
    assert torch.equal(store.client(0)[1], Y[:samples])


def test_two_samples_in_a_list_are_two_samples() -> None:
    store = ClientData.from_datasets([[(X[0], 0), (X[1], 1)]])
    assert store.samples.tolist() == [2]


def test_a_pair_of_unequal_arrays_is_refused() -> None:
    with pytest.raises(InputError, match=r"^data of client 1 = .* equally many.* inputs and 3$"):
        ClientData.from_datasets([(X, Y), (X, Y[:3])])


def test_views_are_what_copies_are() -> None:
    """Clients of row numbers, some of which several have, in any order."""
    inputs, targets = torch.arange(20.0).reshape(10, 2), torch.arange(10)
    parts = [np.array([3, 1, 4]), np.array([1]), np.array([9, 0])]
    views = ClientData.views(inputs, targets, parts)
    copies = ClientData.from_partition(inputs, targets, parts)
    assert views.inputs is inputs
    np.testing.assert_array_equal(views.samples, copies.samples)
    for client in range(3):
        for mine, other in zip(views.client(client), copies.client(client), strict=True):
            torch.testing.assert_close(mine, other)
    chosen = torch.tensor([[0, 5], [3, 3]])
    for mine, other in zip(views.part(chosen), copies.part(chosen), strict=True):
        torch.testing.assert_close(mine, other)
    some = views.select([2, 0])
    assert some.index is None
    torch.testing.assert_close(some.inputs, copies.select([2, 0]).inputs)
    again = ClientData.from_datasets([views, copies])
    torch.testing.assert_close(again.client(0), again.client(1))


def test_a_table_of_row_numbers_is_taken_as_it_is() -> None:
    inputs, targets = torch.arange(20.0).reshape(10, 2), torch.arange(10)
    views = ClientData.views(inputs, targets, np.array([[1, 2], [2, 7]]))
    assert views.client(1)[1].tolist() == [2, 7]
    for wrong in (np.array([[1, 10]]), [[0], [-1]], [[0.5]], [[[0]]]):
        with pytest.raises(InputError, match="indices of client"):
            ClientData.views(inputs, targets, wrong)


def test_a_label_that_nobody_holds_may_be_anything() -> None:
    inputs, targets = torch.zeros(4, 2), torch.tensor([0, 7, 1, 9])
    ClientData.views(inputs, targets, [[0], [2, 0]]).check_labels(2)
    with pytest.raises(InputError, match="label of client 1, sample 2"):
        ClientData.views(inputs, targets, [[0], [2, 0, 3]]).check_labels(2)
