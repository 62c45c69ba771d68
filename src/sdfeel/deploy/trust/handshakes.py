"""Failed TLS handshakes get a name: they end inside gRPC, before any call that we could refuse.

gRPC has no callback for them in Python (asked for in grpc/grpc#38665). It says on standard error
why one failed, and not with whom. So while an edge runs, its standard error goes through
`handshake_filter`, a process beside it, which tells about them and passes everything else on.

A caller that does not like the edge's certificate, since it has another CA or a wrong clock, closes
the connection without a word. Of that gRPC speaks only when it is asked to trace handshakes.
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

__all__ = ["Handshakes", "explain", "trace_handshakes"]

PATIENCE = 2.0
TRACE = "GRPC_TRACE"
# What it means for a caller that the edge's certificate is not good, by `classify`.
EDGE_IS = {
    "expired": "the edge's certificate has expired by the clock of this machine: is one of the two "
    "clocks wrong, or was it not renewed?",
    "not-yet-valid": "the edge's certificate is not valid yet by the clock of this machine, which "
    "is probably behind",
    "unknown-ca": "the edge's certificate is not of the CA in this machine's ca.pem",
}
TURNED_AWAY = (
    "the edge ended the handshake. If it is up, it refuses this node's certificate: another CA, "
    "expired, or one of the two clocks is wrong; the edge's log says which (handshake-refused)"
)
FOREIGN = "this node's own certificate is not of the CA in its ca.pem: the edge refuses it"


def trace_handshakes() -> None:
    """Ask gRPC to tell of all handshakes. Only before it is imported: it looks once."""
    if "grpc" not in sys.modules:
        os.environ.setdefault(TRACE, "handshaker")


def explain(details: str, is_foreign: bool) -> str:
    """Say in words what a failed attempt to reach an edge probably means.

    Args:
        details: what gRPC says of it.
        is_foreign: whether the caller's own certificate is not of its own CA.

    Returns:
        A sentence, then what gRPC says; that alone where nothing is known.

    >>> explain("last error: UNAVAILABLE: ipv4:10.0.0.1:7001: Connection refused", False)
    'last error: UNAVAILABLE: ipv4:10.0.0.1:7001: Connection refused'
    """
    if "andshake failed" in details:
        reason = EDGE_IS.get(handshake_filter.classify(details), "")
    elif "failed to connect" in details and details.endswith(("Socket closed", "reset by peer")):
        reason = FOREIGN if is_foreign else TURNED_AWAY
    else:
        reason = ""
    return f"{reason} ({details})" if reason else details


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
                report = json.loads(line)
                self._tell(report["reason"], int(report["count"]), report["detail"])
        return bool(data)
