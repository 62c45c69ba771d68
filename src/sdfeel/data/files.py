"""The checksums by which the files of a data set are accepted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["File", "content_fault", "file_fault"]


@dataclass(frozen=True)
class File:
    """One file of a data set; `md5` is the one its authors (or their readers) published."""

    name: str
    size: int
    sha256: str
    md5: str | None = None


def file_fault(path: Path, file: File) -> str | None:
    """What is wrong with the file at `path`, in words that follow its name; None if it is right."""
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"has {size:,} bytes instead of {file.size:,}"
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return None if found == file.sha256 else _mismatch("sha256", found, file.sha256)


def content_fault(content: bytes, file: File) -> str | None:
    """The same for bytes that are about to become that file."""
    if len(content) != file.size:
        return f"has {len(content):,} bytes instead of {file.size:,}"
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        return _mismatch("sha256", found, file.sha256)
    if file.md5 is not None:
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != file.md5:
            return _mismatch("md5", found, file.md5)
    return None


def _mismatch(kind: str, found: str, expected: str) -> str:
    return f"has the {kind} {found[:12]}... instead of {expected[:12]}..."
