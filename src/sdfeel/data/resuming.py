"""A downloader for pooch that goes on where an earlier attempt was interrupted."""

from __future__ import annotations

import http
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pooch

from sdfeel.data.registries import SourceError

Progress = Callable[[str, int, int], None]
"""Called with (what is downloaded, bytes so far, bytes in all)."""

TIMEOUT = 6.0  # seconds to connect, and for every read: what is out of reach must fail fast
CONTINUATIONS = 3  # how often a broken connection is taken up again, and only after some progress
CHUNK = 1 << 14  # what at most is lost where a connection breaks


@dataclass
class Resuming:
    """Fill `path`.part up to `size` bytes, and hand it to pooch, which checks it."""

    path: Path
    size: int
    progress: Progress

    def __post_init__(self) -> None:
        self.part = self.path.with_name(f"{self.path.name}.part")
        self._file: IO[bytes]

    def __call__(self, url: str, output_file: str, _: object) -> None:
        for _attempt in range(1 + CONTINUATIONS):
            before = self._done
            if before >= self.size:
                break
            reason = self._request(url, before)
            if self._done <= before:
                raise SourceError(reason)
        if self._done < self.size:
            raise SourceError(f"ended after {self._done:,} of {self.size:,} bytes")
        self.part.replace(output_file)

    @property
    def _done(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _request(self, url: str, start: int) -> str:
        """Ask once for what comes after `start`; the reason, if nothing comes."""
        headers = {"User-Agent": "sdfeel", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        download = pooch.HTTPDownloader(
            chunk_size=CHUNK, timeout=TIMEOUT, headers=headers, verify=_certificates(),
            hooks={"response": self._begin},
        )  # fmt: skip
        try:
            with self.part.open("ab") as self._file:
                download(url, self, None)
        except (OSError, ValueError) as error:  # every error of requests is an OSError
            return _reason(error)
        return "the server sent nothing"

    def _begin(self, response: Any, **_: object) -> None:
        """Begin anew where the server does: it need not honour the range."""
        # A file that is gzipped stays so, also where the server declares it as an encoding.
        response.raw.headers.pop("Content-Encoding", None)
        start = f"bytes {self._file.tell()}-"
        continues = response.status_code == http.HTTPStatus.PARTIAL_CONTENT
        continues &= response.headers.get("Content-Range", "").startswith(start)
        if response.ok and not response.is_redirect and not continues:
            self._file.truncate(0)

    def write(self, chunk: bytes) -> None:
        """Take bytes from pooch, up to the size of the file."""
        self._file.write(chunk)
        done = self._file.tell()
        if done > self.size:
            self._file.truncate(0)
            raise ValueError(f"sends more than the {self.size:,} bytes it should have")
        self.progress(self.path.name, done, self.size)

    def flush(self) -> None:
        """Do nothing: the file is closed at the end of the answer."""


def _certificates() -> str | bool:
    """Return the certificates that this machine trusts, else those that requests brings along."""
    if "REQUESTS_CA_BUNDLE" in os.environ:
        return True
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True


def _reason(error: BaseException) -> str:
    """The innermost cause: requests wraps a refused connection three times."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
