"""Data sets as tensors, read from checked files; images stay bytes.

Normalisation: a pixel p in 0..255 of channel c becomes (p/255 - mean_c) / std_c, with the mean and
deviation of that channel over the training images of the full data set, rounded to four digits
(`sdfeel.data.catalogue`). The test images get the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.data.archives import unxz
from sdfeel.data.catalogue import Spec, dataset_folder, spec
from sdfeel.data.fetch import check
from sdfeel.errors import InputError, RunError
from sdfeel.trees import Pixels

__all__ = ["Dataset", "load", "train_labels"]

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Pixels are bytes (N, channels, height, width) that know their scale; targets int64 (N,)."""

    name: str
    train_pixels: Pixels
    train_targets: torch.Tensor
    test_pixels: Pixels
    test_targets: torch.Tensor
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train_pixels.shape[1:])

    @property
    def train_inputs(self) -> torch.Tensor:
        """The training images as float32, normalised: made anew when asked for."""
        return self.train_pixels.real()

    @property
    def test_inputs(self) -> torch.Tensor:
        """The same of the test images."""
        return self.test_pixels.real()


@dataclass(frozen=True, eq=False)
class _Raw:
    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


def load(name: str) -> Dataset:
    """The data set of that name (`sdfeel data list` names them), from this machine only.

    Every file's checksum is verified first: a truncated or altered one is a RunError that names it.
    A data set that was never fetched is an InputError with the command that fetches it.
    """
    dataset = spec(name)
    raw = _read(dataset)
    return Dataset(
        name=name,
        train_pixels=Pixels(raw.train_images, dataset.mean, dataset.std),
        train_targets=torch.from_numpy(raw.train_labels.astype(np.int64)),
        test_pixels=Pixels(raw.test_images, dataset.mean, dataset.std),
        test_targets=torch.from_numpy(raw.test_labels.astype(np.int64)),
        classes=dataset.classes,
    )


def train_labels(name: str) -> NDArray[np.int64]:
    """The labels of the training images alone, which is all that a partition looks at."""
    return _read(spec(name)).train_labels.astype(np.int64)


def _read(dataset: Spec) -> _Raw:
    folder = dataset_folder(dataset.name)
    if not dataset.embedded and not any((folder / file.name).exists() for file in dataset.files):
        raise InputError(
            "dataset",
            dataset.name,
            f"not on this machine (looked in {folder}); run `sdfeel data fetch {dataset.name}`",
        )
    check(dataset, folder)
    return _LAYOUTS[dataset.layout](dataset, folder)


def _idx(dataset: Spec, folder: Path) -> _Raw:
    """LeCun's idx files: a header of 16 bytes before images, of 8 before labels."""
    parts = [np.fromfile(folder / file.name, dtype=np.uint8) for file in dataset.files]
    return _Raw(
        parts[0][16:].reshape(-1, *dataset.shape),
        parts[1][8:],
        parts[2][16:].reshape(-1, *dataset.shape),
        parts[3][8:],
    )


def _cifar(dataset: Spec, folder: Path) -> _Raw:
    """Records of one label byte and 3,072 bytes: the red, the green and the blue plane."""
    records = [
        np.fromfile(folder / file.name, dtype=np.uint8).reshape(-1, 3073) for file in dataset.files
    ]
    train, test = np.concatenate(records[:-1]), records[-1]
    return _Raw(
        train[:, 1:].reshape(-1, *dataset.shape),
        train[:, 0],
        test[:, 1:].reshape(-1, *dataset.shape),
        test[:, 0],
    )


def _packed(dataset: Spec, folder: Path) -> _Raw:
    """5,000 labels and then as many images of 784 pixels, split by `five_k_split`."""
    with (folder / dataset.files[0].name).open("rb") as stream:
        content = np.frombuffer(unxz(stream, limit=5000 * 785), dtype=np.uint8)
    if len(content) != 5000 * 785:
        raise RunError(f"dataset {dataset.name}: {len(content):,} bytes instead of 5000 x 785")
    labels = content[:5000]
    test = five_k_split(content[5000:].reshape(5000, 784), labels)
    images = content[5000:].reshape(-1, *dataset.shape)
    return _Raw(images[~test], labels[~test], images[test], labels[test])


def five_k_split(images: Bytes, labels: Bytes, seed: int = 0) -> NDArray[np.bool_]:
    """Which of the 5,000 images test: of each class the fifth whose hash (with the seed) is least.

    A hash instead of a generator, so that the split is the same with every version of every
    library.
    """
    keys = np.array([hashlib.sha256(b"%d:" % seed + row.tobytes()).hexdigest() for row in images])
    test = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        test[rows[np.argsort(keys[rows], kind="stable")[: len(rows) // 5]]] = True
    return test


_LAYOUTS: dict[str, Callable[[Spec, Path], _Raw]] = {
    "idx": _idx,
    "cifar": _cifar,
    "packed": _packed,
}
