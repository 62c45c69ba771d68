"""The page's server: the standard library's, on this machine alone unless told otherwise.

It answers GET and HEAD, from files of its own and from `Views`; no request names a path on the
disk. A page from elsewhere can neither read it (the host's name is checked) nor be shown in it (the
content security policy allows this server and nothing else).
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from sdfeel.deploy.facts.http import Answer, BoundedHandler, BoundedServer, is_loopback
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
# A report comes from a folder that others may write to: no script of it runs.
REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
TEXT, JSON = "text/plain; charset=utf-8", "application/json"
LONGEST = 8192  # of a query
CONNECTIONS, SECONDS = 64, 60.0  # see `BoundedServer`; a browser keeps some open


class PageServer(BoundedServer):
    """Listens when it is made; `token` is None on loopback, and must come with every request else.

    host  an address of this machine; port 0 takes a free one
    """

    def __init__(self, views: Views, host: str = "127.0.0.1", port: int = 0, **bounds: Any) -> None:
        self.views = views
        self.token = None if is_loopback(host) else secrets.token_urlsafe(24)
        self.files = _own_files()
        limits = {"most": CONNECTIONS, "seconds": SECONDS} | bounds
        try:
            super().__init__((host, port), _Handler, **limits)
        except (OSError, OverflowError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            remedy = f"cannot listen: {reason}"
            raise InputError("--host, --port", f"{host}:{port}", remedy) from None

    @property
    def address(self) -> str:
        """What a browser opens."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        page = f"http://{shown}:{port}/"
        return page if self.token is None else f"{page}?token={self.token}"

    @property
    def cookie(self) -> str:
        """The name of the cookie that holds the token: cookies of a host go to all its ports."""
        return f"sdfeel-page-{self.server_address[1]}"

    def knows(self, host: str, here: str) -> bool:
        """Where there is a token, nothing of the page is read without it, by whatever name."""
        return self.token is not None or super().knows(host, here)


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


class _Handler(BoundedHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    headers_of_all = HEADERS

    def find(self) -> Answer:
        try:
            return self._find()
        except SdfeelError as problem:
            return Answer(400, JSON, _json({"error": str(problem)}))

    def _find(self) -> Answer:
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return Answer(404, TEXT, b"not here")
        query = _query(parts.query)
        if self.server.token is not None:
            if self._is_token(query.pop("token", "")):
                return self._keep_token(parts.path, query)
            if not self._is_token(self._cookie()):
                remedy = b"the address that was printed has a token: open all of it once"
                return Answer(401, TEXT, remedy)
        return self._page(parts.path, query)

    def _page(self, path: str, query: dict[str, str]) -> Answer:
        if path in self.server.files:
            return Answer(200, *self.server.files[path])
        if path == "/report":
            body = self.server.views.runs.report(query.get("of", ""))
            return Answer(200, KINDS[".html"], body, {"Content-Security-Policy": REPORT_POLICY})
        if path == "/replay.html":  # what a report calls the page of its runs
            return Answer(303, TEXT, b"", {"Location": "/"})
        view = self.server.views.table.get(path.removeprefix("/api/"))
        if view is None or not path.startswith("/api/"):
            return Answer(404, TEXT, b"not here")
        return Answer(200, JSON, _json(view(query)))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), str(self.server.token).encode())

    def _cookie(self) -> str:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return ""
        return cookies[self.server.cookie].value if self.server.cookie in cookies else ""

    def _keep_token(self, path: str, query: dict[str, str]) -> Answer:
        """Move the token from the address, which is shown, kept and sent on, into a cookie."""
        clean = "/" + quote(path.lstrip("/"), safe="/%")
        clean += f"?{urlencode(query)}" if query else ""
        cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        return Answer(303, TEXT, b"", {"Location": clean, "Set-Cookie": cookie})


def _own_files() -> dict[str, tuple[str, bytes]]:
    """By address; the page itself is at /."""
    files = {}
    for entry in (resources.files("sdfeel.page") / "static").iterdir():
        kind = KINDS.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            files[f"/{entry.name}"] = (kind, entry.read_bytes())
    files["/"] = files.pop("/index.html")
    return files


def _query(text: str) -> dict[str, str]:
    if len(text) > LONGEST:
        raise InputError("query", f"{len(text)} characters", f"at most {LONGEST}")
    return {name: values[-1] for name, values in parse_qs(text, keep_blank_values=True).items()}


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()
