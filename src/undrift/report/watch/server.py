"""The HTTP server of `undrift watch`, which is read only.

Paths of requests never reach the file system: pages are looked up in a table, and names of runs in
the list of those that were found.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import socket
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from html import escape
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from undrift.config import UndriftError
from undrift.report.page.page import SCRIPTS, asset, fill, plotly, render_page, script
from undrift.report.summary import summarise
from undrift.report.text import printable
from undrift.report.watch.folder import Folder
from undrift.runs.layout import RunFile

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self';"
    " img-src data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""content security policy; plotly.js needs inline styles"""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Response(Exception):
    """An HTTP response; refusals are raised."""

    def __init__(
        self, body: str, kind: str = "text/plain", status: int = 200, name: str | None = None
    ) -> None:
        super().__init__(body)
        self.body = body.encode(errors="replace")  # JSON may hold lone surrogates
        self.kind = kind
        self.status = status
        self.name = name


class PageServer(ThreadingHTTPServer):
    """Serves the runs of a folder at `url`.

    host  an address of this machine; other machines can reach all but loopback addresses
    port  0 for any free one
    """

    daemon_threads = True

    def __init__(self, folder: Folder, host: str = "127.0.0.1", port: int = 0) -> None:
        self.folder = folder
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self.address_family, *_, address = found[0]
            super().__init__(address[:2], Handler)  # type: ignore[arg-type]
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UndriftError(
                f"cannot listen at {host}, port {port} ({reason}); "
                "give another --port (0 takes any that is free) or --host"
            ) from None
        self.host = host
        self.private = ipaddress.ip_address(str(self.server_address[0])).is_loopback

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}/"

    def answers_to(self, host: str) -> bool:
        """Whether the Host header of a request is one of ours.

        Others are refused against DNS rebinding: a foreign page whose name resolves to this machine
        could read the runs.
        """
        names = {"localhost", "127.0.0.1", "[::1]", self.host.lower(), f"[{self.host}]"}
        known = {f"{name}:{self.server_port}" for name in names}
        if self.server_port == HTTP_PORT:  # browsers omit the default port
            known |= names
        return not self.private or host.lower() in known

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close the connection during a response."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @cached_property
    def pages(self) -> dict[str, Response]:
        """Responses that do not depend on the runs."""
        watch = files("undrift.report.watch")
        own = {name: watch.joinpath(name).read_text(encoding="utf-8") for name in OWN}
        view = fill(asset("view.html"), defaultdict(str))  # the script fills in the parts
        path = self.folder.path
        folder = {"folder": escape(printable(path.name)), "path": escape(printable(path))}
        page = fill(own["watch.html"], folder | {"view": view})
        code = script(*map(asset, SCRIPTS), own["watch.js"])
        return {
            "/": Response(page, "text/html"),
            "/page.css": Response(asset("page.css") + own["watch.css"], "text/css"),
            "/plotly.js": Response(plotly(), "text/javascript"),
            "/page.js": Response(code, "text/javascript"),
        }


OWN = ("watch.html", "watch.css", "watch.js")


class Handler(BaseHTTPRequestHandler):
    """Handles one request."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "undrift", ""
    timeout = 60

    def do_GET(self) -> None:
        """Send the response, or 304 if the browser has it already."""
        try:
            response = self._response()
        except Response as refusal:
            response = refusal
        self._send(response, self.headers.get("If-None-Match"))

    do_HEAD = do_GET

    def _response(self) -> Response:
        if not self.server.answers_to(self.headers.get("Host", "")):
            raise Response("not a name of this page", status=HTTPStatus.FORBIDDEN)
        try:
            asked = urlsplit(self.path)
            names = parse_qs(asked.query, max_num_fields=1000).get("run", [])
        except ValueError as error:
            raise Response(f"not an address ({error})", status=HTTPStatus.BAD_REQUEST) from None
        made: dict[str, Callable[[], Response]] = {
            "/runs": lambda: _json(self.server.folder.facts()),
            "/view": lambda: _json(self.server.folder.view(names)),
            f"/{RunFile.REPORT}": lambda: self._report(names),
        }
        if asked.path in made:
            return made[asked.path]()
        if asked.path in self.server.pages:
            return self.server.pages[asked.path]
        raise Response("there is no such page", status=HTTPStatus.NOT_FOUND)

    def _report(self, names: list[str]) -> Response:
        run = self.server.folder.together(names)
        if run is None:
            raise Response("there is no such run", status=HTTPStatus.NOT_FOUND)
        return Response(render_page(run, summarise(run)), "text/html", name=str(RunFile.REPORT))

    def _send(self, response: Response, held: str | None = None) -> None:
        tag = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
        known = response.status == HTTPStatus.OK and held == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if known else response.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("ETag", tag)
        self.send_header("Content-Type", f"{response.kind}; charset=utf-8")
        if response.name is not None:
            self.send_header("Content-Disposition", f'attachment; filename="{response.name}"')
        self.send_header("Content-Length", "0" if known else str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD" and not known:
            self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request, and close the connection, which may be out of step."""
        self.close_connection = True
        self._send(Response(message or HTTPStatus(code).phrase, status=code))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a page sends a request every other second."""


def _json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False, separators=(",", ":")), "application/json")
