"""The metrics port: whatever strangers do to it, Prometheus gets its answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from sdfeel.deploy.facts.http import HEAD, BoundedServer, serve_http
from sdfeel.deploy.facts.metrics import Metrics


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def serving(**options) -> Iterator[BoundedServer]:
    server = serve_http("127.0.0.1:0", Metrics(), lambda: True, lambda: False, **options)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def connect(server: BoundedServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(server.server_address[:2], timeout=60)
    connection.sendall(sent)
    return connection


def whole(connection: socket.socket) -> bytes:
    """All that comes until the server closes; a reset is a close."""
    text = b""
    with suppress(ConnectionError):
        while data := connection.recv(65_536):
            text += data
    return text


def get(server: BoundedServer, path: str = "/healthz", host: str = "localhost") -> int:
    with connect(server, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()) as caller:
        return int(whole(caller).split(b" ")[1])


def test_its_three_addresses_and_no_other() -> None:
    with serving() as server:
        statuses = [get(server, path) for path in ("/metrics", "/healthz", "/readyz", "/", "/x")]
        assert statuses == [200, 200, 503, 404, 404]
        with connect(server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") as metrics:
            assert b"sdfeel_period" in whole(metrics)


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: loc"])
def test_silent_connections_keep_nobody_out(sent: bytes) -> None:
    """Each makes room for the next; so threads and descriptors are as few as before."""
    before = threading.active_count()
    with serving(most=4) as server, ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(server, sent))
        assert get(server) == 200
        assert server.open_connections <= 4
        assert threading.active_count() <= before + 1 + 4


def test_a_slow_connection_is_closed_when_its_time_is_over() -> None:
    """A byte now and then does not renew it."""
    clock = Clock()
    with serving(seconds=10, clock=clock) as server, connect(server, b"GET /met") as slow:
        assert get(server) == 200
        assert server.open_connections >= 1
        clock.now = 9.0
        slow.sendall(b"rics")
        clock.now = 10.0
        assert whole(slow) == b""


def test_an_answer_that_nobody_takes_ends_with_its_time() -> None:
    clock = Clock()
    metrics = Metrics()
    for number in range(3000):  # some megabytes of text
        metrics.phase.labels("x" * 100 + str(number))
    server = serve_http(
        "127.0.0.1:0", metrics, lambda: True, lambda: True, most=1, seconds=10, clock=clock
    )
    try:
        with connect(server) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert deaf.recv(10) == b"HTTP/1.0 2"  # the answer is on its way
            clock.now = 20.0
            assert get(server) == 200
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9101", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("edge-1.example", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("10.0.0.1", 403),
        ("", 400),
        ("[", 400),
        ("[::1", 400),
        ("localhost:x", 400),
        ("user@localhost", 400),
        ("localhost/x", 400),
    ],
)
def test_requests_for_another_host_are_refused(host: str, status: int) -> None:
    """Else a web page whose name leads to this machine could read the metrics."""
    with serving(names=["edge-1.example"]) as server:
        assert get(server, host=host) == status


def test_where_it_listens_everywhere_the_address_counts_at_which_it_was_reached() -> None:
    server = serve_http("0.0.0.0:0", Metrics(), lambda: True, lambda: True)
    try:
        assert server.knows("10.1.2.3", here="10.1.2.3")
        assert not server.knows("10.1.2.4", here="10.1.2.3")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"x" * HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    ],
    ids=["line", "header", "headers"],
)
def test_a_request_that_is_too_long_is_refused(request_: bytes, capfd) -> None:
    with serving() as server, connect(server) as long:
        with suppress(ConnectionError):  # it does not read on
            long.sendall(request_)
        assert whole(long)[9:12] in (b"431", b"")
        assert get(server) == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02", b"\r\n", b"GET\r\n\r\n", b"\0" * 100 + b"\n"]
)
def test_what_is_no_request_leaves_no_traceback(sent: bytes, capfd) -> None:
    with serving() as server:
        with connect(server, sent) as odd:
            odd.shutdown(socket.SHUT_WR)
            whole(odd)
        assert get(server) == 200
    assert capfd.readouterr().err == ""
