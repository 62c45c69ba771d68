"""Data as others keep it becomes the same store as data given by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import sdfeel
from sdfeel.data import (
    ClientData,
    Columns,
    Pixels,
    from_arrays,
    from_flower,
    from_huggingface,
    from_pandas,
    from_tokens,
)
from sdfeel.errors import InputError

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 1, 0])
WHO = np.array(["b", "a", "b", "c", "a", "b"])


class Table:
    """What a Hugging Face `Dataset` has of rows and columns."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}


class Partitioner:
    """What a partitioner of Flower Datasets has once its dataset is set."""

    def __init__(self, parts: list[Table]) -> None:
        self._parts = parts
        self.num_partitions = len(parts)

    def load_partition(self, number: int) -> Table:
        return self._parts[number]


class Federated:
    """What a `FederatedDataset` has: partitioners by split, sure of themselves once asked."""

    def __init__(self, parts: list[Table]) -> None:
        self._parts = parts
        self.partitioners: dict[str, Partitioner] = {}

    def load_partition(self, number: int, split: str) -> Table:
        self.partitioners[split] = Partitioner(self._parts)
        return self._parts[number]


def assert_same(one: ClientData, other: ClientData) -> None:
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.targets, other.targets)
    assert one.offsets.tolist() == other.offsets.tolist()


BY_HAND = ClientData.from_partition(torch.tensor(X), torch.tensor(Y), [[1, 4], [0, 2, 5], [3]])


def test_arrays_pandas_and_huggingface_with_a_client_column_give_the_same_store() -> None:
    assert_same(from_arrays(X, Y, client=WHO), BY_HAND)
    frame = pd.DataFrame({"p": X[:, 0], "device": WHO, "q": X[:, 1], "y": Y}, index=range(6, 0, -1))
    assert_same(from_pandas(frame, label="y", client="device"), BY_HAND)
    assert_same(from_pandas(frame, label="y", client="device", features=["p", "q"]), BY_HAND)
    table = Table(x=X.tolist(), y=Y.tolist(), who=WHO.tolist())
    found = from_huggingface(table, inputs="x", label="y", client="who", transform=torch.tensor)
    assert_same(found, BY_HAND)


def test_without_a_client_column_the_store_is_shared_out_by_partition() -> None:
    frame = pd.DataFrame({"p": X[:, 0], "q": X[:, 1], "y": Y})
    result = sdfeel.train(
        nn.Linear(2, 2),
        from_pandas(frame, label="y"),
        partition="iid",
        network=sdfeel.Network.ring(servers=3, clients_per_server=1),
        steps=2,
        batch_size=2,
        engine="reference",
    )
    assert result.iterations == 2


@pytest.mark.parametrize("kind", [Partitioner, Federated])
def test_a_client_for_each_partition_of_flower(kind: Any) -> None:
    parts = [[1, 4], [0, 2, 5], [3]]
    tables = [Table(x=X[p].tolist(), y=Y[p].tolist()) for p in parts]
    found = from_flower(kind(tables), inputs="x", label="y", transform=torch.tensor)
    assert_same(found, BY_HAND)


def test_images_stay_bytes_with_the_scale_that_is_said() -> None:
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (4, 5, 6), dtype=np.uint8)
    colour = rng.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    labels = [0, 1, 0, 1]
    pictures = Table(image=[Image.fromarray(each) for each in grey], y=labels)
    found = from_huggingface(pictures, inputs="image", label="y", mean=0.3, std=0.2)
    assert isinstance(found.inputs, Pixels)
    assert (found.inputs.values[:, 0].numpy() == grey).all()
    assert (found.inputs.mean, found.inputs.std) == (0.3, 0.2)
    pictures = Table(image=[Image.fromarray(each) for each in colour], y=labels)
    found = from_huggingface(pictures, inputs="image", label="y")
    assert (found.inputs.values.numpy() == colour.transpose(0, 3, 1, 2)).all()
    assert torch.equal(found.client(0)[0], found.inputs.values.float() / 255)
    with pytest.raises(InputError, match="images without a transform"):
        from_huggingface(
            pictures, inputs="image", label="y", mean=0.5, transform=lambda image: image.width
        )


def test_several_columns_reach_forward_in_order_or_by_name() -> None:
    table = Table(a=X.tolist(), b=(2 * X).tolist(), y=Y.tolist())
    pair, target = Columns(table, ("b", "a"), "y")[1]
    assert [part.tolist() for part in pair] == [[4, 6], [2, 3]]
    assert target == 1
    named, _ = Columns(table, {"left": "a", "right": "b"}, "y")[0]
    assert {name: part.tolist() for name, part in named.items()} == {
        "left": [0, 1],
        "right": [0, 2],
    }


def test_token_ids_are_cut_and_filled_up_to_one_length() -> None:
    texts = [[5, 6, 7], [8], [9, 10, 11, 12]]
    assert from_tokens(texts, [0, 1, 0]).inputs.tolist() == [
        [5, 6, 7, 0],
        [8, 0, 0, 0],
        [9, 10, 11, 12],
    ]
    short = from_tokens(texts, [0, 1, 0], length=2, pad=3, client=[1, 0, 1])
    assert short.inputs.tolist() == [[8, 3], [5, 6], [9, 10]]
    assert short.inputs.dtype == torch.int64
    assert short.samples.tolist() == [1, 2]
    with pytest.raises(InputError, match="tokens of text 1"):
        from_tokens([[1], [0.5]], [0, 1])


def test_mistakes_name_the_column_and_what_would_be_right() -> None:
    frame = pd.DataFrame({"p": [1.0, np.nan], "kind": ["u", "v"], "y": [0, 1]})
    with pytest.raises(InputError, match=r"label = 'yy'.*did you mean 'y'"):
        from_pandas(frame, label="yy")
    with pytest.raises(InputError, match=r"column 'p', row 1 = 'missing'"):
        from_pandas(frame, label="y", features=["p"])
    with pytest.raises(InputError, match=r"column 'kind'.*cat\.codes"):
        from_pandas(frame, label="y", features=["kind"])
    with pytest.raises(InputError, match="a list of columns"):
        from_pandas(frame, label="y", features="p")
    with pytest.raises(InputError, match="a value for each of 6 rows"):
        from_arrays(X, Y, client=WHO[:5])
    with pytest.raises(InputError, match="inputs = 'image'"):
        from_huggingface(Table(x=[1], y=[0]), inputs="image", label="y")
    with pytest.raises(InputError, match="a partitioner of flwr_datasets"):
        from_flower([Table(x=[1], y=[0])], inputs="x", label="y")


def test_pairs_of_pandas_are_pairs_of_arrays() -> None:
    given = [(pd.DataFrame(X[p]), pd.Series(Y[p], index=p)) for p in ([1, 4], [0, 2, 5], [3])]
    assert_same(ClientData.from_datasets(given), BY_HAND)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"x": X, "y": Y}, r"\['x', 'y'\]: .* a pair \(inputs, targets\)"),
        (pd.DataFrame({"p": [1.0], "y": [0]}), r"\['p', 'y'\].*from_pandas"),
        ((X, WHO), "words become class numbers"),
        ((X.astype(object), Y), r"\.astype\(np\.float32\)"),
    ],
)
def test_what_no_client_can_have_is_named(data: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sdfeel.train(nn.Linear(2, 2), [data], network=sdfeel.Network([[0]], []), steps=1)


def test_columns_may_have_numbers_for_names_and_no_infinite_values() -> None:
    frame = pd.DataFrame(np.column_stack([X, Y]))
    assert torch.equal(from_pandas(frame, label=2).inputs, torch.tensor(X))
    with pytest.raises(InputError, match=r"column 0, row 1 = inf"):
        from_pandas(pd.DataFrame({0: [1.0, np.inf], 1: [0, 1]}), label=1)
    with pytest.raises(InputError, match="a pandas DataFrame"):
        from_pandas([[1, 2]], label="y")


def test_a_dataset_for_each_client_needs_no_partition() -> None:
    network = sdfeel.Network.ring(servers=3, clients_per_server=1)
    with pytest.raises(InputError, match="leave it out where each client has its own"):
        sdfeel.train(nn.Linear(2, 2), [(X, Y)] * 3, network=network, partition="iid", steps=1)


def test_whole_numbers_in_place_of_real_ones_say_how_to_change_them() -> None:
    network = sdfeel.Network([[0]], [])
    with pytest.raises(InputError, match=r"whole numbers stay whole.*\.astype\(np\.float32\)"):
        sdfeel.train(nn.Linear(2, 2), [(X.astype(int), Y)], network=network, steps=1)
    with pytest.raises(InputError, match=r"inputs\[:, None\]"):
        sdfeel.train(nn.Linear(1, 2), [(X[:, 0], Y)], network=network, steps=1)


class Streamed:
    """What an `IterableDataset` of Hugging Face has: columns, and neither length nor numbers."""

    column_names = ("x", "y")


class Unset(Partitioner):
    """A partitioner of Flower Datasets whose dataset is not set raises where it is asked."""

    def __init__(self) -> None:
        pass

    @property
    def num_partitions(self) -> int:
        raise AttributeError("The dataset field should be set\nbefore using it")

    @num_partitions.setter
    def num_partitions(self, value: int) -> None: ...


def test_splits_streams_and_partitioners_without_data_are_named() -> None:
    table = Table(x=X.tolist(), y=Y.tolist())
    with pytest.raises(InputError, match=r"'dict'.*has splits; give one of 'train', 'test'"):
        from_huggingface({"train": table, "test": table}, inputs="x", label="y")
    with pytest.raises(InputError, match=r"'Streamed'.*a length and rows by number"):
        from_huggingface(Streamed(), inputs="x", label="y")
    with pytest.raises(InputError, match=r"'Unset'.*should be set before using it"):
        from_flower(Unset(), inputs="x", label="y")


def test_what_comes_without_an_adapter_says_which_one_helps() -> None:
    rows = Table(x=X.tolist(), y=Y.tolist())
    with pytest.raises(InputError, match=r"\['x', 'y'\].*from_huggingface\(rows, inputs"):
        ClientData.from_datasets([rows])
    with pytest.raises(InputError, match=r"filled up by sdfeel.data.from_tokens"):
        ClientData.from_datasets([Columns(Table(x=[[1], [1, 2]], y=[0, 1]), "x", "y")])
    with pytest.raises(InputError, match="words become class numbers"):
        ClientData.from_datasets([Columns(Table(x=[[1]], y=["cat"]), "x", "y")])


def test_the_real_packages_have_what_is_relied_on() -> None:
    """Where they are installed: `Table` and `Partitioner` above say no more than they do."""
    datasets = pytest.importorskip("datasets")
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    images = [Image.fromarray(np.full((4, 4), value, dtype=np.uint8)) for value in range(8)]
    features = datasets.Features(
        {"image": datasets.Image(), "y": datasets.Value("int64"), "who": datasets.Value("string")}
    )
    rows = {"image": images, "y": [0, 1] * 4, "who": ["u", "v", "v", "v"] * 2}
    whole = datasets.Dataset.from_dict(rows, features=features)
    found = from_huggingface(whole, inputs="image", label="y", client="who")
    assert found.samples.tolist() == [2, 6]
    assert found.inputs.values[:, 0, 0, 0].tolist() == [0, 4, 1, 2, 3, 5, 6, 7]
    partitioner = partitioners.IidPartitioner(num_partitions=4)
    partitioner.dataset = whole
    shared = from_flower(partitioner, inputs="image", label="y")
    assert shared.samples.tolist() == [2, 2, 2, 2]
    assert sorted(shared.inputs.values[:, 0, 0, 0].tolist()) == list(range(8))
    with pytest.raises(InputError, match="dataset field should be set"):
        from_flower(partitioners.IidPartitioner(4), inputs="image", label="y")
    with pytest.raises(InputError, match=r"'DatasetDict'.*give one of 'train'"):
        from_huggingface(datasets.DatasetDict(train=whole), inputs="image", label="y")
    with pytest.raises(InputError, match="'IterableDataset'"):
        from_huggingface(whole.to_iterable_dataset(), inputs="image", label="y")


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_formatted_images_have_their_channels_first_too(kind: str) -> None:
    datasets = pytest.importorskip("datasets")
    colour = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "y": datasets.Value("int64")})
    rows = {"image": [Image.fromarray(each) for each in colour], "y": [0, 1, 0, 1]}
    whole = datasets.Dataset.from_dict(rows, features=features).with_format(kind)
    found = from_huggingface(whole, inputs="image", label="y")
    assert (found.inputs.values.numpy() == colour.transpose(0, 3, 1, 2)).all()


def test_a_federated_dataset_of_files_and_its_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    federated = pytest.importorskip("flwr_datasets").FederatedDataset
    whole = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()})
    whole.to_parquet(tmp_path / "train.parquet")
    given = federated(dataset=str(tmp_path), partitioners={"train": 3})
    assert from_flower(given, inputs="x", label="y").samples.tolist() == [2, 2, 2]
    with pytest.raises(InputError, match=r"'FederatedDataset'.*'test'"):
        from_flower(given, inputs="x", label="y", split="test")
