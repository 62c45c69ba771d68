"""Compiled networks on disk, so that a compiler is asked once; nobody else can put one there.

The folder lies in `SDFEEL_CACHE`, else in the user's cache folder. A library is code: it is taken
only from a folder and a file that belong to this user and that no other user can write to, and what
is loaded is a copy in memory of the very bytes that were checked.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import secrets
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdfeel.errors import warn
from sdfeel.files import cache_folder

from .errors import Unsupported


@dataclass(frozen=True)
class Entry:
    """A library, and what is written beside it. None in its place: it was refused."""

    library: bytes | None
    notes: dict[str, Any]


@contextmanager
def _folder() -> Iterator[tuple[int, Path]]:
    """The private folder, open: whatever happens to its name later, it is the one looked at."""
    path = cache_folder("SDFEEL_CACHE") / "fast"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unsupported(f"the compiled network cannot be kept: {error}") from None
    try:
        fault = _fault(os.fstat(handle))
        if fault:
            raise Unsupported(
                f"the folder {path} of compiled networks {fault}: remove it, or set SDFEEL_CACHE"
            )
        os.fchmod(handle, 0o700)
        yield handle, path
    except OSError as error:
        raise Unsupported(f"the compiled network cannot be kept or loaded: {error}") from None
    finally:
        os.close(handle)


def _fault(status: os.stat_result) -> str | None:
    """Why a file or folder may hold what somebody else put there."""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written to by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _content(folder: int, path: Path) -> bytes | None:
    """Return what the file holds, if it can be trusted; checked is the file that was opened."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path.name, flags, dir_fd=folder), "rb") as file:
            status = os.fstat(file.fileno())
            fault = "is not a file" if not stat.S_ISREG(status.st_mode) else _fault(status)
            if fault is None:
                return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
    warn(f"{path} {fault}: the network is compiled again")
    return None


def read(key: str) -> Entry | None:
    """Return the entry under `key`, or None if there is nothing whole."""
    with _folder() as (folder, path):
        text = _content(folder, path / f"{key}.json")
        try:
            notes = json.loads(text or "")
            digest = notes["library"]
        except (ValueError, RecursionError, TypeError, KeyError):
            return None
        if notes.get("key") != key:
            return None
        if digest is None:
            return Entry(None, notes)
        library = _content(folder, path / f"{key}.so")
    if library is None or hashlib.sha256(library).hexdigest() != digest:
        return None
    return Entry(library, notes)


def keep(key: str, library: bytes | None, notes: dict[str, Any]) -> None:
    """Put both there, each at once or not at all: several processes may want them."""
    digest = None if library is None else hashlib.sha256(library).hexdigest()
    text = json.dumps({**notes, "key": key, "library": digest}, indent=1).encode()
    with _folder() as (folder, _):
        if library is not None:
            _replace(folder, f"{key}.so", library)
        # After the library: one without notes was never proven, and is not used.
        _replace(folder, f"{key}.json", text)


def _replace(folder: int, name: str, content: bytes) -> None:
    temporary = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


_loaded: dict[str, ctypes.CDLL] = {}  # by digest: a library is never unloaded
_loading = threading.Lock()
_numbers = itertools.count(1)


def load(library: bytes) -> ctypes.CDLL:
    """The library of these bytes, from a copy that nobody else can reach."""
    digest = hashlib.sha256(library).hexdigest()
    with _loading:
        if digest not in _loaded:
            _loaded[digest] = _fresh(library)
        return _loaded[digest]


def _fresh(library: bytes) -> ctypes.CDLL:
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError), os.fdopen(os.memfd_create("sdfeel"), "wb") as file:
            file.write(library)
            file.flush()
            # The loader knows a library by its path, and numbers of open files come back: dots
            # in the middle make a path that it has not seen.
            dots = f"{next(_numbers):b}".replace("0", "/").replace("1", "/.")
            return ctypes.CDLL(f"/proc/self/fd{dots}/{file.fileno()}")
    try:
        with tempfile.TemporaryDirectory(prefix="sdfeel-") as folder:
            path = Path(folder, "network.so")
            path.write_bytes(library)
            return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unsupported(f"the compiled network cannot be loaded: {error}") from None
