"""A small web server on the loopback, with faults to order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server:
    """Serves `files`, and keeps the path and the Range of each request in `asked`.

    cut     how many bytes of a body are sent in the first so many answers: [100, 100, ...]
    ranges  whether it can send the rest of a file
    busy    answers with 503 before it serves
    length  whether it says how long a body is
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.cut: list[int] = []
        self.busy = 0
        self.ranges = True
        self.length = True
        self.asked: list[tuple[str, str | None]] = []
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.asked.append((handler.path, wanted))
        body = self.files.get(handler.path)
        if self.busy or body is None:
            self.busy = max(0, self.busy - 1)
            handler.send_error(503 if body is not None else 404)
            return
        start = int(wanted[6:-1]) if wanted and self.ranges else 0
        if start and start >= len(body):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        body = body[start:]
        if self.length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.cut.pop(0)] if self.cut else body)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    server = Server(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *about: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
