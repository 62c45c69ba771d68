"""Files that are either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sdfeel.errors import InputError


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Write beside the file, force to disk, rename: a kill leaves the old or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        os.fchmod(handle, mode)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder: what was renamed survives a power cut."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write content to a file at once: readers see all of it or what was there before."""
    with replacing(path, mode) as file:
        file.write(content)


class FileLock:
    """A file that one holder at a time has locked; the system lets go of it when a process ends.

    The file itself stays and says who holds it, or held it last.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def acquire(self, who: str = "", wait: bool = False) -> None:
        """Raises BlockingIOError with what the holder wrote if it is taken and we do not wait."""
        file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as problem:
            with file:
                file.seek(0)
                holder = file.read(200).strip()
            raise BlockingIOError(problem.errno, holder) from None
        with contextlib.suppress(OSError):  # a full disk does not keep us from holding it
            file.truncate(0)
            file.write(who)
            file.flush()
        self._file = file

    @property
    def is_held(self) -> bool:
        """Whether this object has the lock."""
        return self._file is not None

    def release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> FileLock:
        if self._file is None:
            self.acquire(wait=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def cache_folder(variable: str) -> Path:
    """The folder that this environment variable names, else `sdfeel` in the XDG cache folder."""
    chosen = os.environ.get(variable)
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules: a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "sdfeel"


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


def write_json(
    path: Path,
    content: Any,
    write: Callable[[Path, bytes], None] = write_atomically,
    allow_nan: bool = True,
) -> None:
    """Write a file of JSON, by default as `write_atomically` does; other objects as their text."""
    text = json.dumps(content, indent=2, allow_nan=allow_nan, default=str) + "\n"
    write(path, text.encode())
