"""A small HTTP server that strangers may connect to: few connections, each for a bounded time.

It answers GET and HEAD. A connection that is silent, slow or does not read its answer is closed
after some seconds, or sooner if its place is needed: the one that has waited longest makes room for
a new one. So no number of connections keeps anybody out, and threads and descriptors are few.
"""

from __future__ import annotations

import io
import ipaddress
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET6, SHUT_RDWR, socket
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.deploy.facts.metrics import ClientMetrics, Metrics

__all__ = [
    "Answer",
    "BoundedHandler",
    "BoundedServer",
    "is_loopback",
    "serve_http",
    "serving_metrics",
    "split_address",
]

CONNECTIONS = 16  # of the metrics port
SECONDS = 10.0  # in which a request must have come, and its answer be taken
HEAD = 16 * 1024  # bytes of a request line and its headers together
POLL = 0.1  # seconds between two looks for connections that are overdue


class Answer(NamedTuple):
    """What a request gets."""

    status: int
    kind: str
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


@dataclass
class _Connection:
    """One that is open.

    due      when it is closed, on the server's clock
    is_busy  its request has come in and is being answered
    """

    socket: socket
    due: float
    is_busy: bool = False


class BoundedServer(HTTPServer):
    """Listens when it is made; `serve_forever` answers, with a thread for each connection.

    Args:
        address: host and port; port 0 takes a free one.
        handler: a `BoundedHandler`.
        names: host names, beside the address and localhost, that a request may be for.
        most: connections, and so threads, at a time.
        seconds: for a request to come in, and for its answer to be taken.
        clock: for tests.
    """

    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BoundedHandler],
        names: Iterable[str] = (),
        most: int = CONNECTIONS,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        host, port = address
        self._names = {name.lower() for name in (host, *names) if name}
        self._seconds, self._clock = seconds, clock
        self._free = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._connections: dict[socket, _Connection] = {}
        self._is_ending = False
        if ":" in host:
            self.address_family = AF_INET6
        super().__init__((host, port), handler)

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def knows(self, host: str, here: str) -> bool:
        """Return whether a request for `host` that came in at the address `here` is for us.

        A web page elsewhere can give its own name our address; its requests come with that name.
        """
        return host in self._names or host in ("localhost", here) or is_loopback(host)

    # Connections.

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread; if all are taken, wait until one has ended."""
        must_wait = not self._free.acquire(blocking=False)
        while must_wait:
            if self._is_ending:
                self.shutdown_request(request)
                return
            self._close_overdue()
            self._close_idle()
            must_wait = not self._free.acquire(timeout=POLL)
        with self._lock:
            self._connections[request] = _Connection(request, self._clock() + self._seconds)
        work = (request, client_address)
        threading.Thread(target=self._serve, args=work, daemon=True).start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            with self._lock:
                del self._connections[request]
            self.shutdown_request(request)
            self._free.release()

    def note(self, request: Any, *, is_busy: bool) -> None:
        """Give a connection its seconds anew: it begins to wait for a request, or has one."""
        with self._lock:
            connection = self._connections[request]
            connection.due, connection.is_busy = self._clock() + self._seconds, is_busy

    def service_actions(self) -> None:
        self._close_overdue()

    def _close_overdue(self) -> None:
        now = self._clock()
        with self._lock:
            for connection in self._connections.values():
                if connection.due <= now:
                    _wake(connection.socket)

    def _close_idle(self) -> None:
        """Close the one that has waited longest for a request."""
        with self._lock:
            idle = [each for each in self._connections.values() if not each.is_busy]
            if idle:
                _wake(min(idle, key=lambda each: each.due).socket)

    def shutdown(self) -> None:
        self._is_ending = True
        super().shutdown()

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for connection in self._connections.values():
                _wake(connection.socket)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that goes away in the middle is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _wake(request: socket) -> None:
    """End both directions: the thread that reads or writes there goes on, and closes it."""
    with suppress(OSError):
        request.shutdown(SHUT_RDWR)


class _TooLong(Exception):  # noqa: N818 - a verdict on a request
    """A request line and headers of more than `HEAD` bytes."""


class _HeadReader(io.BufferedReader):
    """Reads lines of one request after another, each request up to `HEAD` bytes."""

    left = HEAD

    def readline(self, size: int | None = -1, /) -> bytes:
        most = self.left + 1 if size is None or size < 0 else min(size, self.left + 1)
        line = super().readline(most)
        self.left -= len(line)
        if self.left < 0:
            raise _TooLong
        return line


class BoundedHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection; `find` says what.

    headers_of_all  what every answer has beside its type and length
    """

    server: BoundedServer
    headers_of_all: Mapping[str, str] = MappingProxyType({})
    rfile: _HeadReader
    server_version, sys_version = "sdfeel", ""
    requestline = request_version = command = ""  # until the first has been read

    def find(self) -> Answer:
        """Return the answer to a request whose Host is ours."""
        return Answer(404, "text/plain")

    def setup(self) -> None:
        super().setup()
        raw = cast(io.BufferedReader, self.rfile).detach()
        self.rfile = _HeadReader(raw)

    def handle_one_request(self) -> None:
        self.rfile.left = HEAD
        self.server.note(self.connection, is_busy=False)
        try:
            super().handle_one_request()
        except _TooLong:
            self.close_connection = True
            self.send_error(431)

    def parse_request(self) -> bool:
        is_good = super().parse_request()
        self.server.note(self.connection, is_busy=True)
        return is_good

    def do_GET(self) -> None:
        host = _host_of(self.headers.get("Host", ""))
        if host is None:
            remedy = b"Host must be a name or an address, with a port or without"
            answer = Answer(400, "text/plain", remedy)
        elif not self.server.knows(host, _bare(self.connection.getsockname()[0])):
            answer = Answer(403, "text/plain", b"this server answers to its own names only")
        else:
            answer = self.find()
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815 - the base class asks for this name

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**self.headers_of_all, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests leave no lines."""


def _host_of(header: str) -> str | None:
    """Return the name in a Host header, without its port; None if it is none."""
    try:
        parts = urlsplit(f"//{header}")
        parts.port  # noqa: B018 - a ValueError if it is no number
    except ValueError:
        return None
    if not parts.hostname or parts.netloc != header or "@" in header:
        return None
    return _bare(parts.hostname)


def _bare(host: str) -> str:
    """Return an address as the other family of addresses would not have it: ::ffff:a.b.c.d is
    a.b.c.d.
    """
    return host.removeprefix("::ffff:") if "." in host else host


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(address: str) -> tuple[str, int]:
    """Split host:port; the host of [::1]:7001 is ::1, and that of :7001 is 127.0.0.1."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)


def serve_http(
    address: str,
    metrics: Metrics | ClientMetrics,
    healthy: Callable[[], bool],
    ready: Callable[[], bool],
    names: Iterable[str] = (),
    **bounds: Any,
) -> BoundedServer:
    """Serve /metrics, /healthz and /readyz from a thread until `shutdown`.

    Args:
        address: host:port to listen on.
        metrics: what Prometheus is given.
        healthy, ready: whether the answer is 200 or 503.
        names: more hosts that requests may be for, see `BoundedServer`.
        bounds: `most`, `seconds` and `clock` of `BoundedServer`.
    """
    from prometheus_client import generate_latest

    checks = {"/healthz": healthy, "/readyz": ready}

    class Handler(BoundedHandler):
        def find(self) -> Answer:
            if self.path == "/metrics":
                text = generate_latest(metrics.registry)
                return Answer(200, "text/plain; version=0.0.4; charset=utf-8", text)
            if self.path not in checks:
                return Answer(404, "text/plain")
            is_good = checks[self.path]()
            body = json.dumps({"ok": is_good}).encode()
            return Answer(200 if is_good else 503, "application/json", body)

    server = BoundedServer(split_address(address), Handler, names, **bounds)
    threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
    return server


@contextmanager
def serving_metrics(
    address: str, metrics: ClientMetrics, ready: Callable[[], bool]
) -> Iterator[BoundedServer | None]:
    """While inside, serve as `serve_http` does; nothing where there is no address.

    Raises:
        InputError: The address is none, or nobody can listen there.
    """
    if not address:
        yield None
        return
    metrics.add_process()
    try:
        server = serve_http(address, metrics, lambda: True, ready)
    except (OSError, ValueError, OverflowError) as problem:
        reason = f"HOST:PORT on which this machine can listen: {problem}"
        raise InputError("--metrics", address, reason) from None
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
