"""Failed TLS handshakes get a name: they end inside gRPC, before any call that we could refuse.

gRPC has no callback for them in Python (asked for in grpc/grpc#38665). It says on standard error
why one failed, and not with whom. So while an edge runs, its standard error goes through `relay`,
a process beside it, which tells about handshakes and passes everything else on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable

from sdfeel.deploy import relay

__all__ = ["Handshakes"]

PATIENCE = 2.0


class Handshakes:
    """Between `start` and `stop`, calls `tell(reason, count, detail)` in the event loop.

    If the relay cannot be started or dies, standard error is what it was before, and nothing
    else changes.
    """

    def __init__(self, tell: Callable[[str, int, str], None]) -> None:
        self._tell = tell
        self._original: int | None = None
        self._relay: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def start(self) -> None:
        if sys.__stderr__ is None:
            return  # started without one: descriptor 2 is somebody else's
        self._original = os.dup(2)
        source, sink = os.pipe()
        try:
            self._relay = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", relay.__file__],
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
        assert self._relay is not None  # noqa: S101 - by its callers
        assert self._relay.stdout is not None  # noqa: S101 - asked for above
        return self._relay.stdout.fileno()

    def stop(self) -> None:
        """Standard error is the old one again, and all that was said has arrived there."""
        if self._relay is None:
            return
        asyncio.get_running_loop().remove_reader(self._reports)
        self._restore()
        try:
            self._relay.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # whoever reads our standard error does not
            self._relay.kill()
            self._relay.wait()
        while self._take():
            pass
        if self._relay.stdout is not None:
            self._relay.stdout.close()
        self._relay = None

    def _restore(self) -> None:
        if self._original is not None:
            os.dup2(self._original, 2)
            os.close(self._original)
            self._original = None

    def _read(self) -> None:
        if not self._take():
            self.stop()  # the relay is gone

    def _take(self) -> bool:
        """Tells what was reported; False once the relay has closed its end."""
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
