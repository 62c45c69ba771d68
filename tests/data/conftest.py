from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Web:
    """A server on loopback that can break off or forget ranges, and remembers what was asked."""

    url: str = ""
    pages: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    encoding: str = ""  # what it claims of the bytes
    moved: dict[str, str] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)  # bytes sent before each next break
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            web.asked.append((self.path, wanted))
            if self.path in web.moved:
                self.send_response(302)
                self.send_header("Location", web.moved[self.path])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            page = web.pages.get(self.path)
            if page is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and web.ranges else 0
            body = page[start:]
            if start >= len(page) and start:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(page) - 1}/{len(page)}")
            if web.encoding:
                self.send_header("Content-Encoding", web.encoding)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: web.cut_after.pop(0)] if web.cut_after else body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
