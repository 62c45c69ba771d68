"""Bringing a data set to this machine: every source in order, until the checksums are right."""

from __future__ import annotations

import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sdfeel.data.catalogue import Spec, dataset_folder, spec
from sdfeel.data.download import Progress, SourceError, download, no_progress
from sdfeel.data.files import File, content_fault, file_fault
from sdfeel.data.sources import Source, sources
from sdfeel.errors import RunError
from sdfeel.files import FileLock

__all__ = ["Fetched", "fetch", "obtain"]

# What a source may do wrong: be out of reach, or send what is not what it should be.
_FAULTS = (SourceError, OSError, EOFError, ValueError, tarfile.TarError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class Fetched:
    """Where the files are, which source gave them, and what was tried before in vain."""

    name: str
    folder: Path
    source: str
    tried: tuple[str, ...] = ()


def fetch(name: str, progress: Progress = no_progress) -> Fetched:
    """Make the data set ready for `load`; quick if it already is.

    Raises RunError with everything that was tried if no source delivers.
    """
    dataset = spec(name)
    folder = dataset_folder(name)
    if dataset.embedded:
        check(dataset, folder)
        return Fetched(name, folder, "inside this package")
    return obtain(name, dataset.files, sources(name), folder, progress)


def check(dataset: Spec, folder: Path) -> None:
    """Raise RunError, naming the file and the remedy, unless every file is there and right."""
    for file in dataset.files:
        fault = file_fault(folder / file.name, file)
        if fault is not None:
            remedy = (
                "run `pip install --force-reinstall sdfeel`, which brings it"
                if dataset.embedded
                else f"run `sdfeel data fetch {dataset.name}` to get it again"
            )
            raise RunError(f"dataset {dataset.name}: {folder / file.name} {fault}: {remedy}")


def obtain(
    name: str,
    files: Sequence[File],
    options: Sequence[Source],
    folder: Path,
    progress: Progress = no_progress,
) -> Fetched:
    """Fill `folder` with `files` from the first of `options` that delivers them all."""
    if not _wrong(files, folder):  # asked before the lock, which a read-only cache would not allow
        return Fetched(name, folder, "the cache")
    tried: list[str] = []
    ours: set[Path] = set()
    with _locked(folder):
        wrong = _wrong(files, folder)
        if not wrong:
            return Fetched(name, folder, "the cache")
        for file, fault in wrong.items():
            if fault != "is missing":
                tried.append(f"the cache: {folder / file.name} {fault}")
        for source in options:
            try:
                _deliver(source, list(wrong), folder, progress, ours)
            except _FAULTS as error:
                tried.append(f"{source.title}: {error or type(error).__name__}")
            else:
                _tidy(options, folder, ours)
                return Fetched(name, folder, source.title, tuple(tried))
    raise RunError(_failure(name, folder, files, options, tried))


def _wrong(files: Sequence[File], folder: Path) -> dict[File, str]:
    faults = {file: file_fault(folder / file.name, file) for file in files}
    return {file: fault for file, fault in faults.items() if fault is not None}


def _deliver(
    source: Source, files: Sequence[File], folder: Path, progress: Progress, ours: set[Path]
) -> None:
    """Take the files that are needed from one source; keep each only if its checksum is right."""
    paths: list[Path] = []
    for item in source.downloads:
        path, was_there = download(item, folder, progress)
        paths.append(path)
        if not was_there:
            ours.add(path)
    needed = {file.name: file for file in files}
    for name, content in source.unpack(paths):
        if name in needed:
            _keep(content, needed.pop(name), folder)
    if needed:
        raise SourceError(f"it lacks {', '.join(needed)}")


def _tidy(options: Sequence[Source], folder: Path, ours: set[Path]) -> None:
    """Remove what was downloaded and is unpacked now; a package placed by hand stays."""
    parts = {folder / f"{item.filename}.part" for source in options for item in source.downloads}
    for path in ours | parts:
        path.unlink(missing_ok=True)


def _keep(content: bytes, file: File, folder: Path) -> None:
    fault = content_fault(content, file)
    if fault is not None:
        raise SourceError(f"its {file.name} {fault}")
    fresh = folder / f"{file.name}.new"
    with fresh.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(folder / file.name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time fills a folder; another waits, and then finds it full."""
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
    name: str,
    folder: Path,
    files: Sequence[File],
    options: Sequence[Source],
    tried: Sequence[str],
) -> str:
    lines = [f"no source delivered the data set {name}. Tried, in this order:"]
    lines += [f"  {number}. {reason}" for number, reason in enumerate(tried, 1)]
    packed = sorted({item.filename for source in options for item in source.downloads})
    names = ", ".join(file.name for file in files)
    lines.append(f"Remedy: place by hand, in {folder}, either {names}")
    if packed:
        lines.append(f"  or what they come packed in (of one source): {', '.join(packed)};")
    lines.append(f"  then run `sdfeel data fetch {name}` again; checksums are checked.")
    return "\n".join(lines)
