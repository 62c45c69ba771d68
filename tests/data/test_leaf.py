"""LEAF's JSON: users as clients, groups as clusters; hostile files are refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sdfeel
from sdfeel.data import from_leaf, leaf_clusters
from sdfeel.errors import InputError


def written(folder: Path, name: str = "train.json", **content: Any) -> Path:
    (folder / name).write_text(json.dumps(content))
    return folder


def user(samples: int, first: float = 0.0) -> dict[str, Any]:
    return {"x": [[first, i + 0.5] for i in range(samples)], "y": [i % 3 for i in range(samples)]}


def test_users_of_several_files_are_clients_in_the_order_of_their_names(tmp_path: Path) -> None:
    written(tmp_path, "b.json", users=["zoe", "ann"], user_data={"zoe": user(2), "ann": user(3, 7)},
            num_samples=[2, 3])  # fmt: skip
    written(tmp_path, "a.json", users=["mia"], user_data={"mia": user(1)})
    data = from_leaf(tmp_path)
    assert data.samples.tolist() == [3, 1, 2]
    inputs, labels = data.client(0)
    torch.testing.assert_close(inputs, torch.tensor([[7, 0.5], [7, 1.5], [7, 2.5]]))
    assert labels.tolist() == [0, 1, 2]
    assert from_leaf(tmp_path, shape=(1, 2, 1)).inputs.shape == (6, 1, 2, 1)


def test_whole_numbers_of_one_user_are_real_where_those_of_another_are(tmp_path: Path) -> None:
    """A black image is written as 0, 0, 0: it was an image of another kind."""
    users = {"ann": {"x": [[0, 1]], "y": [1]}, "bob": {"x": [[0.5, 1]], "y": [0]}}
    data = from_leaf(written(tmp_path, users=["ann", "bob"], user_data=users))
    assert data.inputs.dtype == torch.float32
    assert data.targets.dtype == torch.int64


def test_texts_become_numbers_of_letters(tmp_path: Path) -> None:
    own = {"x": ["to be", "or no"], "y": [" ", "t"]}
    data = from_leaf(written(tmp_path, users=["ham"], user_data={"ham": own}))
    assert data.inputs.shape == (2, 5)
    assert data.inputs[0, 0] == data.targets[1]
    assert data.targets.shape == (2,)


def test_clusters_keep_groups_together_and_train(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "e"]
    users = {name: user(n) for name, n in zip(names, (2, 9, 3, 4, 1), strict=True)}
    groups = ["north", "south", "north", "east", "south"]
    written(tmp_path, users=names, user_data=users, hierarchies=groups)
    clusters = leaf_clusters(tmp_path, servers=2)
    assert clusters == [[1, 4], [0, 2, 3]]  # 10 samples, and 5 + 4
    torch.manual_seed(0)
    result = sdfeel.train(
        torch.nn.Linear(2, 3), from_leaf(tmp_path), steps=2,
        network=sdfeel.Network(clusters, "path"),
    )  # fmt: skip
    assert result.iterations == 2
    with pytest.raises(InputError, match="3 groups"):
        leaf_clusters(tmp_path, servers=4)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ("[]", "an object with users"),
        ({"users": "ann", "user_data": {}}, "a list of names"),
        ({"users": ["ann"], "user_data": []}, "x and y of each user"),
        ({"users": ["ann"], "user_data": {}}, "x and y of the user"),
        ({"users": ["ann"], "user_data": {"ann": {"x": [[1.0]], "y": []}}}, "an entry for each"),
        ({"users": ["ann"], "user_data": {"ann": {"x": [[1.0]], "y": [1, 2]}}}, "as many y as x"),
        ({"users": ["ann"], "user_data": {"ann": {"x": [[1], [1, 2]], "y": [1, 2]}}}, "one shape"),
        ({"users": ["ann"], "user_data": {"ann": {"x": [[float("nan")]], "y": [1]}}}, "finite"),
        ({"users": ["ann"], "user_data": {"ann": {"x": [[10**40]], "y": [1]}}}, "one shape"),
        ({"users": ["ann"], "user_data": {"ann": {"x": [[True]], "y": [1]}}}, "one shape"),
        ({"users": ["ann"], "user_data": {"ann": {"x": ["\u00e9"], "y": [1]}}}, "letters of LEAF"),
        ({"users": ["ann"], "user_data": {"ann": {"x": ["ab", "c"], "y": [1, 2]}}}, "one length"),
        ({"users": ["ann", "ann"], "user_data": {"ann": user(1)}}, "two places"),
        ({"users": ["ann"], "user_data": {"ann": user(2)}, "num_samples": [3]}, "num_samples says"),
        ({"users": ["ann"], "user_data": {"ann": user(2)}, "hierarchies": [[]]}, "a group"),
    ],
)
def test_a_hostile_file_is_refused_in_a_sentence(tmp_path: Path, content: Any, why: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "train.json").write_text(text)
    with pytest.raises(InputError, match=why) as caught:
        from_leaf(tmp_path)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_a_folder_without_files_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"\.json|JSON"):
            from_leaf(folder)
    written(tmp_path, users=["ann"], user_data={"ann": user(2)})
    with pytest.raises(InputError, match="samples have"):
        from_leaf(tmp_path, shape=(3,))
    assert np.array_equal(from_leaf(tmp_path).samples, [2])
