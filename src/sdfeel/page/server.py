"""The page's server: the standard library's, on this machine alone unless told otherwise.

It answers GET and HEAD, from files of its own and from `Views`; no request names a path on the
disk. A page from elsewhere can neither read it (the host's name is checked) nor be shown in it (the
content security policy allows this server and nothing else).
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sdfeel.errors import InputError, SdfeelError
from sdfeel.page.views import Views

__all__ = ["PageServer", "serving"]

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
COOKIE = "sdfeel-page"
LONGEST = 8192  # of a query


class PageServer(ThreadingHTTPServer):
    """Listens when it is made; `token` is None on loopback, and must come with every request else.

    host  an address of this machine; port 0 takes a free one
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, views: Views, host: str = "127.0.0.1", port: int = 0) -> None:
        self.views = views
        self.token = None if _is_loopback(host) else secrets.token_urlsafe(24)
        self.files = _own_files()
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as problem:
            said = getattr(problem, "strerror", None) or str(problem)
            raise InputError("--host, --port", f"{host}:{port}", f"cannot listen: {said}") from None

    @property
    def address(self) -> str:
        """What a browser opens."""
        host, port = self.server_address[:2]
        shown = f"http://{host!s}:{port}/"
        return shown if self.token is None else f"{shown}?token={self.token}"

    def knows(self, host: str) -> bool:
        """Whether a request's Host header is ours: another name that leads here is not."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # brackets without an address
            return False
        return self.token is not None or _is_loopback(name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no error."""


@contextmanager
def serving(server: PageServer) -> Iterator[PageServer]:
    """While inside, the server answers from a thread; its watcher asks."""
    watcher = server.views.watcher
    if watcher is not None:
        watcher.start()
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        if watcher is not None:
            watcher.stop()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 60
    server_version, sys_version = "sdfeel", ""

    def do_GET(self) -> None:
        try:
            status, kind, body = self._find()
        except SdfeelError as problem:
            status, kind, body = 400, "application/json", _json({"error": str(problem)})
        self._answer(status, kind, body)

    do_HEAD = do_GET  # noqa: N815 - the base class asks for this name

    def _find(self) -> tuple[int, str, bytes]:
        if not self.server.knows(self.headers.get("Host", "")):
            return 403, "text/plain", b"this page answers to its own address only"
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return 404, "text/plain", b"not here"
        query = _query(parts.query)
        if self.server.token is not None and not self._has_token(query):
            return 401, "text/plain", b"the address that was printed has a token: use all of it"
        if parts.path in self.server.files:
            return 200, *self.server.files[parts.path]
        view = self.server.views.table.get(parts.path.removeprefix("/api/"))
        if view is None or not parts.path.startswith("/api/"):
            return 404, "text/plain", b"not here"
        return 200, "application/json", _json(view(query))

    def _has_token(self, query: dict[str, str]) -> bool:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        kept = cookies[COOKIE].value if COOKIE in cookies else ""
        given = query.get("token", kept).encode()
        return hmac.compare_digest(given, str(self.server.token).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.server.token is not None and status == 200:
            kept = f"{COOKIE}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
            self.send_header("Set-Cookie", kept)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: who looks at a page wants no lines about it."""


def _own_files() -> dict[str, tuple[str, bytes]]:
    """By address; the page itself is at /."""
    found = {}
    for entry in (resources.files("sdfeel.page") / "static").iterdir():
        kind = KINDS.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            found[f"/{entry.name}"] = (kind, entry.read_bytes())
    found["/"] = found.pop("/index.html")
    return found


def _query(text: str) -> dict[str, str]:
    if len(text) > LONGEST:
        raise InputError("query", f"{len(text)} characters", f"at most {LONGEST}")
    return {name: values[-1] for name, values in parse_qs(text, keep_blank_values=True).items()}


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
