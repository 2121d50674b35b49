"""The gate: what stands between devices and a SuperLink.

A SuperLink serves all of its APIs on one port. Its Fleet API asks for a registered key, but its
Control API asks for nothing, and whoever reaches that may start a run, that is, have code of their
own executed by every node. So the SuperLink listens on loopback only, and the gate, which is open
to devices, lets the Fleet API through and nothing else.
"""

from __future__ import annotations

import logging
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.applications import Starlette

log = logging.getLogger("undrift")

FLEET = "/v1/fleet/"
CALL = re.compile("[a-z]+(-[a-z]+)*")
"""one name without slashes or dots, which could lead out of the Fleet API"""
PASSED = ("content-type", "flwr-")
"""beginnings of the names of headers that pass, in both directions"""
LARGEST = 64 * 2**20
"""bytes of a request; Flower sends arrays in chunks of 5 MB"""


def gate(superlink: str, trusted: Path | None = None, transport: Any = None) -> Starlette:
    """The gate to the SuperLink at an address such as https://127.0.0.1:9092.

    trusted    the certificate of the authority that signed the SuperLink's
    transport  in place of the network, for tests
    """
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    verify = ssl.create_default_context(cafile=str(trusted)) if trusted else True
    inner = httpx.AsyncClient(
        base_url=superlink, verify=verify, timeout=60, trust_env=False, transport=transport
    )

    async def forward(request: Request) -> Response:
        call, content = request.path_params["call"], bytearray()
        if not CALL.fullmatch(call):
            return Response(status_code=404)
        async for chunk in request.stream():  # a length that is told may be a lie
            content += chunk
            if len(content) > LARGEST:
                return Response(f"more than {LARGEST} bytes", 413)
        try:
            got = await inner.post(
                FLEET + call,
                content=bytes(content),
                headers=_passing(request.headers),
            )
        except httpx.TransportError:
            return Response("the SuperLink does not answer", 503)  # SuperNodes try again
        if call == "activate-node" and not got.is_success:
            host = request.client.host if request.client else "somewhere"
            log.warning(
                "a node at %s is refused: its key is not registered, or in use, or its clock is "
                "wrong",
                host,
            )
        return Response(got.content, got.status_code, _passing(got.headers))

    return Starlette(routes=[Route(FLEET + "{call}", forward, methods=["POST"])])


def _passing(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower().startswith(PASSED)}


def serve(host: str, port: int, superlink: str, trusted: Path, certfile: Path, key: Path) -> None:
    """Run the gate until it is stopped."""
    import uvicorn

    uvicorn.run(
        gate(superlink, trusted),
        host=host,
        port=port,
        ssl_certfile=certfile,
        ssl_keyfile=str(key),
        log_level="warning",
        server_header=False,
    )


if __name__ == "__main__":
    import sys

    logging.basicConfig(format="%(asctime)s %(message)s")

    from undrift.deploy import keys

    host, port, inner, folder = sys.argv[1:]
    serve(
        host,
        int(port),
        inner,
        keys.certificate(Path(folder)),
        keys.certificate(Path(folder), keys.SERVER),
        keys.private_key(Path(folder)),
    )
