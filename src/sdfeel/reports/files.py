"""Reports on disk: a reader never meets half a file, nor a folder that could not be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sdfeel.errors import InputError

__all__ = ["write_atomically"]


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, then rename; folders on the way are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # mkstemp makes files for the owner only; a report is meant to be passed on.
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise InputError(
            "out", str(path), f"must be a place that can be written: {problem.strerror or problem}"
        ) from None
