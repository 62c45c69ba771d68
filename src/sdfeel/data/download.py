"""Bringing a data set to this machine: every source in order, until the checksums are right."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import SEEK_END, BufferedIOBase, BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pooch

from sdfeel.data.archives import UNPACKERS
from sdfeel.data.catalogue import File, Packed, Source, Spec, dataset_folder, spec
from sdfeel.data.registries import DEBIAN_MIRROR, SourceError, npm_address
from sdfeel.data.resuming import Progress, Resuming
from sdfeel.errors import RunError
from sdfeel.files import FileLock, write_atomically


@dataclass(frozen=True)
class Fetched:
    """The result of a download: its files, their source, and what was tried before in vain."""

    name: str
    folder: Path
    source: str
    tried: tuple[str, ...] = ()


def fetch(name: str, progress: Progress = lambda *_: None) -> Fetched:
    """Make the data set ready for `load`; quick if it already is.

    Raises:
        RunError: no source delivers; the text lists what was tried.
    """
    dataset = spec(name)
    folder = dataset_folder(name)
    if dataset.embedded:
        check(dataset, folder)
        return Fetched(name, folder, "inside this package")
    return obtain(name, dataset.files, dataset.sources, folder, progress)


def check(dataset: Spec, folder: Path) -> None:
    """Raise RunError, naming the file and the remedy, unless every file is there and right."""
    for file, fault in _faults(dataset.files, folder).items():
        remedy = f"run `sdfeel data fetch {dataset.name}` to get it again"
        if dataset.embedded:
            remedy = "run `pip install --force-reinstall sdfeel`, which brings it"
        raise RunError(f"dataset {dataset.name}: {folder / file.name} {fault}: {remedy}")


def obtain(
    name: str,
    files: Sequence[File],
    sources: Sequence[Source],
    folder: Path,
    progress: Progress = lambda *_: None,
) -> Fetched:
    """Fill `folder` with `files` from the first of `sources` that delivers them all."""
    if not _faults(files, folder):  # before the lock, which a read-only cache would not allow
        return Fetched(name, folder, "the cache")
    with _locked(folder):
        faults = _faults(files, folder)
        if not faults:
            return Fetched(name, folder, "the cache")
        tried = [
            f"the cache: {folder / file.name} {fault}"
            for file, fault in faults.items()
            if fault != "is missing"
        ]
        wanted = list(faults)
        attempts = [(source, _downloads(source, url, wanted)) for source, url in _mirrors(sources)]
        paths = {folder / item.filename for _, items in attempts for item in items}
        ours = [path for path in paths if not path.exists()]  # the others were placed by hand
        for source, items in attempts:
            try:
                _deliver(source, items, wanted, folder, progress)
            except (SourceError, OSError, ValueError) as error:
                tried.append(f"{source.title}: {error or type(error).__name__}")
            else:
                for path in ours:
                    path.unlink(missing_ok=True)
                    path.with_name(f"{path.name}.part").unlink(missing_ok=True)
                return Fetched(name, folder, source.title, tuple(tried))
    raise RunError(_failure(name, folder, files, sorted(path.name for path in paths), tried))


def _mirrors(sources: Sequence[Source]) -> Iterator[tuple[Source, str]]:
    """Every address of every source; an empty one where nothing is downloaded."""
    for source in sources:
        addresses = list(source.addresses)
        addresses += [npm_address(source.npm)] if source.npm else []
        addresses += [DEBIAN_MIRROR + source.debian] if source.debian else []
        for address in addresses or [""]:
            yield source, address


def _downloads(source: Source, address: str, files: Sequence[File]) -> list[Download]:
    if source.unpack == "gzip":
        each = [(file.name, file.gzip) for file in files if file.gzip is not None]
        return [Download(f"{address}{name}.gz", packed) for name, packed in each]
    return [Download(address, Packed(source.size, source.sha256))] if address else []


def _deliver(
    source: Source,
    items: Sequence[Download],
    files: Sequence[File],
    folder: Path,
    progress: Progress,
) -> None:
    """Take the files that are needed from one source; keep each only if its checksum is right."""
    paths = {item.filename: item.retrieve(folder, progress) for item in items}
    needed = {file.name: file for file in files}
    limits = {file.name: file.size for file in files}
    for name, content in UNPACKERS[source.unpack](source, paths, limits):
        if name not in needed:
            continue
        fault = _difference(BytesIO(content), needed.pop(name), "sha256", "md5")
        if fault is not None:
            raise SourceError(f"its {name} {fault}")
        write_atomically(folder / name, content)
    if needed:
        raise SourceError(f"it lacks {', '.join(needed)}")


def _faults(files: Sequence[File], folder: Path) -> dict[File, str]:
    faults = {file: _fault(folder / file.name, file) for file in files}
    return {file: fault for file, fault in faults.items() if fault is not None}


def _fault(path: Path, expected: File | Packed) -> str | None:
    """Say what is wrong with the file at `path`, after its name; None if it is right."""
    try:
        with path.open("rb") as stream:
            return _difference(stream, expected, "sha256")
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"


def _difference(stream: BufferedIOBase, expected: File | Packed, *kinds: str) -> str | None:
    size = stream.seek(0, SEEK_END)
    if size != expected.size:
        return f"has {size:,} bytes instead of {expected.size:,}"
    for kind in kinds:
        stream.seek(0)
        digest = hashlib.file_digest(stream, partial(hashlib.new, kind, usedforsecurity=False))
        known = getattr(expected, kind)
        if known is not None and digest.hexdigest() != known:
            return f"has the {kind} {digest.hexdigest()[:12]}... instead of {known[:12]}..."
    return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time fill a folder; another waits, and then finds it full."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(wait=True)
    except OSError as error:
        raise RunError(
            f"cannot write in {folder} ({error.strerror}): "
            "set SDFEEL_DATA to a folder that you may write in"
        ) from error
    with lock:
        yield


def _failure(
    name: str, folder: Path, files: Sequence[File], packed: Sequence[str], tried: Sequence[str]
) -> str:
    lines = [f"no source delivered the data set {name}. Tried, in this order:"]
    lines += [f"  {number}. {reason}" for number, reason in enumerate(tried, 1)]
    names = ", ".join(file.name for file in files)
    lines.append(f"Remedy: place by hand, in {folder}, either {names}")
    if packed:
        lines.append(f"  or what they come packed in (of one source): {', '.join(packed)};")
    lines.append(f"  then run `sdfeel data fetch {name}` again; checksums are checked.")
    return "\n".join(lines)


@dataclass(frozen=True)
class Download:
    """A file of the web; it takes its name only when its checksum is right."""

    url: str
    packed: Packed

    @property
    def filename(self) -> str:
        return urlsplit(self.url).path.rpartition("/")[2]

    @property
    def shown(self) -> str:
        """The address without user name, password or query: fit for messages."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def retrieve(self, folder: Path, progress: Progress = lambda *_: None) -> Path:
        """Download to `folder`, unless it lies there already, placed by hand."""
        path = folder / self.filename
        fault = _fault(path, self.packed) if path.exists() else None
        if fault is not None:
            raise SourceError(f"{path} {fault}: delete it or replace it")
        pooch.get_logger().setLevel(logging.WARNING)  # its notes show addresses with passwords
        downloader = Resuming(path, self.packed.size, progress)
        try:
            known = f"sha256:{self.packed.sha256}"
            pooch.retrieve(self.url, known, self.filename, folder, downloader=downloader)
        except (SourceError, ValueError) as error:
            raise SourceError(f"{self.shown}: {error}") from None
        return path
