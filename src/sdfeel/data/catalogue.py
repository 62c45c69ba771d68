"""The data sets: what files each is made of, their checksums, and how they are normalised.

The checksums of the files were computed from the sources of `sdfeel.data.sources` and agree with
those that others published for the official files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sdfeel.data.files import File
from sdfeel.errors import InputError, closest
from sdfeel.files import cache_folder

__all__ = [
    "CIFAR10",
    "DATASETS",
    "FASHION_MNIST",
    "MNIST",
    "MNIST_5K",
    "Spec",
    "dataset_folder",
    "spec",
]


@dataclass(frozen=True)
class Spec:
    """A data set: its files, and the mean and deviation per channel that normalise it."""

    name: str
    about: str
    layout: str
    files: tuple[File, ...]
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: int = 10
    embedded: bool = False


CIFAR10 = Spec(
    name="cifar10",
    about="60,000 colour photographs of 32x32 in ten classes; 50,000 to train on",
    layout="cifar",
    files=tuple(
        File(name, 30_730_000, sha256, md5)
        for name, md5, sha256 in (
            (
                "data_batch_1.bin",
                "5dd7e06a14cb22eb9f671a540d1b7c25",
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            ),
            (
                "data_batch_2.bin",
                "5ea93a67294ea407fff1d09f752e9692",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            ),
            (
                "data_batch_3.bin",
                "942cd6a4bcdd0dd3c604fbe906cb4421",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            ),
            (
                "data_batch_4.bin",
                "ae636b3ba5c66a11e91e8cb52e771fcb",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            ),
            (
                "data_batch_5.bin",
                "53f37980c15c3d472c316c40844f3f0d",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
            (
                "test_batch.bin",
                "803d5f7f4d78ea53de84dbe85f74fb6d",
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        )
    ),
    shape=(3, 32, 32),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)


def _idx_files(*sha256: str) -> tuple[File, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    sizes = (47_040_016, 60_008, 7_840_016, 10_008)
    return tuple(File(f"{n}-ubyte", s, h) for n, s, h in zip(names, sizes, sha256, strict=True))


MNIST = Spec(
    name="mnist",
    about="70,000 handwritten digits of 28x28; 60,000 to train on",
    layout="idx",
    files=_idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    shape=(1, 28, 28),
    mean=(0.1307,),
    std=(0.3081,),
)

FASHION_MNIST = Spec(
    name="fashion-mnist",
    about="70,000 grey photographs of clothing of 28x28 in ten classes; 60,000 to train on",
    layout="idx",
    files=_idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    shape=(1, 28, 28),
    mean=(0.2860,),
    std=(0.3530,),
)

MNIST_5K = Spec(
    name="mnist-5k",
    about="5,000 of MNIST's digits, 4,000 to train on; nothing to download",
    layout="packed",
    files=(
        File(
            "mnist_5k.xz",
            690_928,
            "fd3f2d40fba438255cd731e77b1340e784a3d0381c08d25be5a2effd1d2d49ed",
        ),
    ),
    shape=(1, 28, 28),
    mean=MNIST.mean,  # those of all of MNIST: a model trained on one reads the other
    std=MNIST.std,
    embedded=True,
)

DATASETS = {s.name: s for s in (MNIST_5K, MNIST, FASHION_MNIST, CIFAR10)}


def spec(name: str) -> Spec:
    """The data set of that name, or an error that lists the names."""
    if name not in DATASETS:
        raise InputError("dataset", name, closest(name, DATASETS))
    return DATASETS[name]


def dataset_folder(name: str) -> Path:
    """Where its files belong: in the cache, or beside this module."""
    if not spec(name).embedded:
        return cache_folder("SDFEEL_DATA") / name
    return Path(__file__).with_name("embedded")
