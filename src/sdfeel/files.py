"""Files that are either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sdfeel.errors import InputError

__all__ = ["check_writable", "write_atomically", "write_report"]


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write beside the file, force to disk, rename: a kill leaves the old or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        os.fchmod(handle, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def check_writable(folder: Path) -> None:
    """Make the folder if need be, and fail before any training if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise InputError(
            "out", str(folder), f"must be a folder that can be written: {problem.strerror}"
        ) from None


def write_report(path: Path, content: bytes) -> None:
    """Write a file for people; folders on the way are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as problem:
        raise InputError(
            "out", str(path), f"must be a place that can be written: {problem.strerror or problem}"
        ) from None
