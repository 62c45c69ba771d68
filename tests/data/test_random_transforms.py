"""A random transform that is frozen, because data is read once, is named; nothing else is."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import Subset

from sdfeel.data import ClientData, Fresh, RandomTransformWarning

IMAGES = torch.arange(96.0).reshape(24, 4)


class Transformed:
    """As torchvision's datasets are: a length, items, a transform."""

    def __init__(self, transform: Callable[[Tensor], Any], images: Tensor = IMAGES) -> None:
        self.transform, self.images, self.reads = transform, images, 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.reads += 1
        return self.transform(self.images[index]), index % 2


def cropped(image: Tensor) -> Tensor:
    start = int(torch.randint(2, ()))
    return image[start : start + 3]


RANDOM: dict[str, Callable[[Tensor], Any]] = {
    "torch": lambda image: image + torch.rand(()),
    "numpy": lambda image: image + np.random.rand(),  # noqa: NPY002
    "python": lambda image: image + random.random(),  # noqa: S311
    "flip": lambda image: image.flip(0) if torch.rand(()) < 0.5 else image,
    "crop": cropped,
    "rare": lambda image: image * (torch.rand(()) < 0.5),
    "in a structure": lambda image: {"a": image, "b": (image, image + torch.rand(()))},
    "another type": lambda image: (image * 9).to(torch.uint8) ^ int(torch.randint(2, ())),
}

STILL: dict[str, Callable[[Tensor], Any]] = {
    "plain": lambda image: image / 255,
    "with gaps": lambda image: torch.where(image % 3 > 0, image, torch.nan),
    "infinite": lambda image: image / 0,
    "yes or no": lambda image: image > 4,
    "seeded by itself": lambda image: (
        image + torch.rand(4, generator=torch.Generator().manual_seed(int(image[0])))
    ),
    "a number": lambda image: float(image[0]),
    "half": lambda image: image.half(),
    "a structure": lambda image: {"a": image, "b": (image, image.int())},
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", RANDOM)
def test_what_changes_is_named_once(what: str, seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    data = [Transformed(RANDOM[what], IMAGES[i::6]) for i in range(6)]
    with pytest.warns(RandomTransformWarning, match=r"Fresh\(dataset\)") as caught:
        ClientData.from_datasets(data)
    assert len(caught) == 1


@given(what=st.sampled_from(sorted(STILL)), clients=st.integers(1, 24))
def test_what_stays_is_not(what: str, clients: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = [Transformed(STILL[what], IMAGES[i::clients]) for i in range(clients)]
        ClientData.from_datasets(data)
        whole = Transformed(STILL[what])
        ClientData.from_datasets([Subset(whole, [3, 1, 2]), Subset(whole, [0])])


def test_fresh_data_is_not_asked() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ClientData.from_datasets([Fresh(Transformed(RANDOM["torch"]))])


@pytest.mark.parametrize("clients", [1, 3, 8, 9, 24])
def test_eight_items_are_read_again_at_most(clients: int) -> None:
    data = [Transformed(STILL["plain"], IMAGES[i::clients]) for i in range(clients)]
    ClientData.from_datasets(data)
    assert sum(dataset.reads for dataset in data) == 24 + 8


def test_generators_are_where_one_reading_leaves_them() -> None:
    """A run must not change because it was checked."""
    states = []
    for read_again in (False, True):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        data = Transformed(
            lambda image: image + torch.rand(()) + np.random.rand() + random.random()  # noqa: NPY002, S311
        )
        if read_again:
            with pytest.warns(RandomTransformWarning):
                read = ClientData.from_datasets([data]).inputs
        else:
            read = torch.stack([data[i][0] for i in range(len(data))])
        states.append((read.tolist(), torch.rand(1), random.random(), np.random.rand()))  # noqa: NPY002, S311
    assert states[0] == states[1]


def test_items_that_can_be_read_once_only_are_no_mistake() -> None:
    class Spent(Transformed):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            if self.reads == len(self):
                raise OSError("the file is closed")
            return super().__getitem__(index)

    assert ClientData.from_datasets([Spent(STILL["plain"])]).samples.tolist() == [24]
