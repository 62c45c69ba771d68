"""Data sets as tensors, read from checked files; images stay bytes.

Normalisation: a pixel p in 0..255 of channel c becomes (p/255 - mean_c) / std_c, with the mean and
deviation of that channel over the training images of the full data set, rounded to four digits
(`sdfeel.data.catalogue`). The test images get the same numbers.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.data.catalogue import Spec, dataset_folder, spec
from sdfeel.data.download import check
from sdfeel.errors import InputError
from sdfeel.trees import Pixels

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
        """Return the test images as a model takes them."""
        return self.test_pixels.real()


# Training images and labels, then those to test on.
Arrays = tuple[Bytes, Bytes, Bytes, Bytes]


def load(name: str) -> Dataset:
    """Read a data set from this machine, once every checksum is right.

    Args:
        name: one that `sdfeel data list` names.

    Raises:
        InputError: it was never fetched; the text has the command that fetches it.
        RunError: a file is truncated or altered; the text names it.

    Example:
        >>> import sdfeel
        >>> digits = sdfeel.data.load("mnist-5k")
        >>> tuple(digits.train_inputs.shape), tuple(digits.test_targets.shape)
        ((4000, 1, 28, 28), (1000,))
    """
    dataset = spec(name)
    images, labels, test_images, test_labels = _read(dataset)
    return Dataset(
        name=name,
        train_pixels=Pixels(images, dataset.mean, dataset.std),
        train_targets=torch.from_numpy(labels.astype(np.int64)),
        test_pixels=Pixels(test_images, dataset.mean, dataset.std),
        test_targets=torch.from_numpy(test_labels.astype(np.int64)),
        classes=dataset.classes,
    )


def train_labels(name: str) -> NDArray[np.int64]:
    """The labels of the training images alone, which is all that a partition looks at."""
    return _read(spec(name))[1].astype(np.int64)


def _read(dataset: Spec) -> Arrays:
    folder = dataset_folder(dataset.name)
    if not dataset.embedded and not any((folder / file.name).exists() for file in dataset.files):
        remedy = f"not on this machine (looked in {folder}); run `sdfeel data fetch {dataset.name}`"
        raise InputError("dataset", dataset.name, remedy)
    check(dataset, folder)
    paths = [folder / file.name for file in dataset.files]
    images, labels, test_images, test_labels = _LAYOUTS[dataset.layout](paths)
    shape = (-1, *dataset.shape)
    return images.reshape(shape), labels, test_images.reshape(shape), test_labels


def _idx(paths: Sequence[Path]) -> Arrays:
    """LeCun's idx files: a header of 16 bytes before images, of 8 before labels."""
    images, labels, test_images, test_labels = (np.fromfile(path, dtype=np.uint8) for path in paths)
    return images[16:], labels[8:], test_images[16:], test_labels[8:]


def _cifar(paths: Sequence[Path]) -> Arrays:
    """Records of one label byte and 3,072 bytes: the red, the green and the blue plane."""
    records = [np.fromfile(path, dtype=np.uint8).reshape(-1, 3073) for path in paths]
    train, test = np.concatenate(records[:-1]), records[-1]
    return train[:, 1:], train[:, 0], test[:, 1:], test[:, 0]


def _packed(paths: Sequence[Path]) -> Arrays:
    """5,000 labels and then as many images of 784 pixels, split by `five_k_split`."""
    content = np.frombuffer(lzma.decompress(paths[0].read_bytes()), dtype=np.uint8)
    labels, images = content[:5000], content[5000:].reshape(5000, 784)
    test = five_k_split(images, labels)
    return images[~test], labels[~test], images[test], labels[test]


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


_LAYOUTS: dict[str, Callable[[Sequence[Path]], Arrays]]
_LAYOUTS = {"idx": _idx, "cifar": _cifar, "packed": _packed}
