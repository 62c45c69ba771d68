"""Downloads that resume, and whose bytes nobody reads before their checksum is right."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from sdfeel.data.files import File, file_fault

__all__ = ["Download", "Progress", "SourceError", "download", "no_progress", "shown"]

Progress = Callable[[str, int, int], None]
"""Called with (what is downloaded, bytes so far, bytes in all)."""

TIMEOUT = 6.0  # seconds to connect, and for every read: what is out of reach must fail fast
CONTINUATIONS = 3  # how often a broken connection is taken up again, and only after some progress
CHUNK = 1 << 18


class SourceError(Exception):
    """One source did not deliver; the text is the reason. Never leaves this package."""


@dataclass(frozen=True)
class Download:
    """One file on the web: `size` is also the cap on what is accepted from the address."""

    url: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        return urlsplit(self.url).path.rpartition("/")[2]


def no_progress(what: str, done: int, total: int) -> None:
    """The callback of who does not want to know."""


def shown(url: str) -> str:
    """The address without user name, password or query: fit for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def download(item: Download, folder: Path, progress: Progress = no_progress) -> tuple[Path, bool]:
    """The downloaded file in `folder`, and whether it was there before (placed by hand).

    Bytes go to `NAME.part`, which the next attempt continues; it takes its name only after its
    checksum is right.
    """
    file = File(item.filename, item.size, item.sha256)
    path = folder / item.filename
    if path.exists():
        fault = file_fault(path, file)
        if fault is not None:
            raise SourceError(f"{path} {fault}: delete it or replace it")
        return path, True
    part = folder / f"{item.filename}.part"
    _fill(item, part, progress)
    fault = file_fault(part, file)
    if fault is not None:
        part.unlink(missing_ok=True)  # nothing to resume: the next attempt starts anew
        raise SourceError(f"{shown(item.url)}: what was sent {fault}")
    part.replace(path)
    return path, False


def _fill(item: Download, part: Path, progress: Progress) -> None:
    """Bring `part` to the full size, taking broken connections up again while there is progress."""
    for _ in range(1 + CONTINUATIONS):
        before = _size(part)
        if before == item.size:
            return
        reason = _request(item, part, progress)
        if reason is None:
            return
        if _size(part) <= before:
            break
    raise SourceError(f"{shown(item.url)}: {reason}")


def _request(item: Download, part: Path, progress: Progress) -> str | None:
    """One request, continuing `part` if the server agrees; the reason if it came to nothing."""
    if urlsplit(item.url).scheme not in ("http", "https"):
        return "only http and https addresses are used"
    start = _size(part)
    if start > item.size:
        part.unlink()
        start = 0
    headers = {"User-Agent": "sdfeel", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = urllib.request.Request(item.url, headers=headers)  # noqa: S310 (scheme checked)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            continues = _continues(response, start)
            with part.open("ab" if continues else "wb") as out:
                _copy(response, out, item, start if continues else 0, progress)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)
        error.close()
        return f"the server answered {error.code} {error.reason}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _reason(error)
    done = _size(part)
    return None if done == item.size else f"ended after {done:,} of {item.size:,} bytes"


def _continues(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether the answer begins at byte `start`; a server may also send everything anew."""
    if not start or response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return False
    return response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _copy(
    response: http.client.HTTPResponse, out: BinaryIO, item: Download, done: int, progress: Progress
) -> None:
    progress(item.filename, done, item.size)
    while chunk := response.read(CHUNK):
        done += len(chunk)
        if done > item.size:
            out.truncate(0)
            raise ValueError(f"sends more than the {item.size:,} bytes it should have")
        out.write(chunk)
        progress(item.filename, done, item.size)


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
