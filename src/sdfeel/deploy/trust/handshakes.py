"""Failed TLS handshakes get a name: they end inside gRPC, before any call that we could refuse.

gRPC has no callback for them in Python (asked for in grpc/grpc#38665). It says on standard error
why one failed, and not with whom. So while an edge runs, its standard error goes through
`handshake_filter`, a process beside it, which tells about them and passes everything else on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable

from sdfeel.deploy.trust import handshake_filter

__all__ = ["Handshakes"]

PATIENCE = 2.0


class Handshakes:
    """Between `start` and `stop`, calls `tell(reason, count, detail)` in the event loop.

    If the filter cannot be started or dies, standard error is what it was before, and nothing
    else changes.
    """

    def __init__(self, tell: Callable[[str, int, str], None]) -> None:
        self._tell = tell
        self._original: int | None = None
        self._filter: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def start(self) -> None:
        if sys.__stderr__ is None:
            return  # started without one: descriptor 2 is somebody else's
        self._original = os.dup(2)
        source, sink = os.pipe()
        try:
            self._filter = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", handshake_filter.__file__],
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=self._original,
            )
            os.dup2(sink, 2)
        except OSError:
            self._restore()
            return
        finally:
            os.close(source)
            os.close(sink)
        os.set_blocking(self._reports, False)
        asyncio.get_running_loop().add_reader(self._reports, self._read)

    @property
    def _reports(self) -> int:
        assert self._filter is not None  # noqa: S101 - by its callers
        assert self._filter.stdout is not None  # noqa: S101 - asked for above
        return self._filter.stdout.fileno()

    def stop(self) -> None:
        """Standard error is the old one again, and all that was said has arrived there."""
        if self._filter is None:
            return
        asyncio.get_running_loop().remove_reader(self._reports)
        self._restore()
        try:
            self._filter.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # whoever reads our standard error does not
            self._filter.kill()
            self._filter.wait()
        while self._take():
            pass
        if self._filter.stdout is not None:
            self._filter.stdout.close()
        self._filter = None

    def _restore(self) -> None:
        if self._original is not None:
            os.dup2(self._original, 2)
            os.close(self._original)
            self._original = None

    def _read(self) -> None:
        if not self._take():
            self.stop()  # the filter is gone

    def _take(self) -> bool:
        """Tells what was reported; False once the filter has closed its end."""
        try:
            data = os.read(self._reports, 65_536)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError):
                found = json.loads(line)
                self._tell(found["reason"], int(found["count"]), found["detail"])
        return bool(data)
