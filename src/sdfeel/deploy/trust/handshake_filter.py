"""Stands behind a node's standard error and picks the failed TLS handshakes out of it.

A program of its own, started by `handshakes`, with nothing but the standard library:

    standard input    what the node and the libraries in it write to standard error
    standard output   one JSON object for each reason and second: reason, count, detail
    standard error    everything else, byte by byte

It ends when the node has, after passing everything on: what a process says in the moment it dies
is still said. So a thread of the node itself would not do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time

__all__ = ["HandshakeFilter", "classify"]

LINE = re.compile(
    rb"^[IWE]\d{4} \S+ +\d+ (?:ssl_transport_security\S*\] Handshake failed with error "
    rb"|handshaker\.cc:\d+\] CallNextHandshakerLocked: error=\w+: (?=Handshake read failed))(.*)"
)
# What else gRPC says when it is asked to trace handshakes, see `handshakes.trace_handshakes`.
TRACE = re.compile(
    rb"^[IWE]\d{4} \S+ +\d+ (?:handshaker\.cc:|channel_trace\.h:\d+\] handshake manager "
    rb"|trace\.cc:\d+\] gRPC Tracers: handshaker$)"
)
SECONDS = 1.0  # between two reports of the same reason
IDLE = 0.1  # after which a line without an end is passed on
LONGEST = 65_536
DETAIL = 200

# What BoringSSL says, and what it is called in our logs and metrics; the first that fits.
REASONS = (
    ("certificate has expired", "expired"),
    ("certificate is not yet valid", "not-yet-valid"),
    ("CERTIFICATE_VERIFY_FAILED", "unknown-ca"),
    ("certificate signature failure", "unknown-ca"),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "no-certificate"),
    ("WRONG_VERSION_NUMBER", "not-tls"),
    ("HTTP_REQUEST", "not-tls"),
    ("HTTPS_PROXY_REQUEST", "not-tls"),
    ("Handshake read failed", "caller-left"),
)


def classify(detail: str) -> str:
    """One of a few words, for a metric."""
    return next((reason for text, reason in REASONS if text in detail), "other")


class HandshakeFilter:
    """Reads `source` to its end; other lines go to `through`, counts of failures to `reports`."""

    def __init__(self, source: int, through: int, reports: int, idle: float = IDLE) -> None:
        self._source, self._through, self._reports = source, through, reports
        self._idle = idle
        self._rest = b""
        self._counts: dict[str, int] = {}
        self._details: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self._listened_to = True
        # A node that does not read must not hold up whoever writes to its standard error.
        os.set_blocking(reports, False)

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([self._source], [], [], self._patience())
            if not ready:
                self._pass(self._rest)
                self._rest = b""
            else:
                data = os.read(self._source, LONGEST)
                if not data:
                    break
                self._take(data)
            self._report(time.monotonic())
        self._pass(self._rest)
        self._report(float("inf"))

    def _patience(self) -> float | None:
        if self._rest:
            return self._idle
        if not self._counts:
            return None
        return max(0.01, min(self._due[reason] for reason in self._counts) - time.monotonic())

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        other = []
        for line in lines:
            failure = LINE.match(line) if self._listened_to else None
            if failure is not None:
                self._count(failure[1].decode(errors="replace"))
            elif not TRACE.match(line):
                other.append(line + b"\n")
        self._pass(b"".join(other))
        if len(self._rest) > LONGEST:
            self._pass(self._rest)
            self._rest = b""

    def _count(self, detail: str) -> None:
        reason = classify(detail)
        self._counts[reason] = self._counts.get(reason, 0) + 1
        self._details[reason] = detail[:DETAIL]
        self._due.setdefault(reason, 0.0)

    def _pass(self, data: bytes) -> None:
        """To where the node's standard error went before; if that is closed, nobody listens."""
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._through, data) :]

    def _report(self, now: float) -> None:
        for reason in [reason for reason in self._counts if self._due[reason] <= now]:
            report = {"reason": reason, "count": self._counts[reason]}
            line = json.dumps({**report, "detail": self._details[reason]}) + "\n"
            self._due[reason] = now + SECONDS
            try:
                os.write(self._reports, line.encode())  # short enough to go as a whole or not
            except BlockingIOError:
                continue  # counted on, and told next time
            except OSError:
                self._listened_to = False
            del self._counts[reason]


if __name__ == "__main__":
    # It ends with the node, not before it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    HandshakeFilter(0, 2, 1).run()
