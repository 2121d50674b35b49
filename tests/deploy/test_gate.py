"""The gate: the Fleet API passes, and nothing else does."""

import asyncio
from typing import Any

import pytest

from undrift.deploy import gate

pytest.importorskip("starlette", reason="starlette is not installed (undrift[flower])")
httpx = pytest.importorskip("httpx", reason="httpx is not installed (undrift[flower])")

seen: list[Any] = []


def superlink(request: Any) -> Any:
    seen.append(request)
    return httpx.Response(
        200,
        content=b"answer to " + request.content,
        headers={"flwr-version": "1", "content-type": "application/x-protobuf", "server": "inner"},
    )


def ask(method: str, path: str, through: Any = superlink, **more: Any) -> Any:
    """Send a request to the gate in front of a SuperLink; all of it in this process."""
    seen.clear()
    app = gate.gate("http://superlink", transport=httpx.MockTransport(through))

    async def send() -> Any:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gate") as client:
            return await client.request(method, path, **more)

    return asyncio.run(send())


FLEET_CALLS = [
    *("register-node", "activate-node", "deactivate-node", "unregister-node"),
    *("send-node-heartbeat", "pull-messages", "push-messages", "get-run", "get-fab"),
    *("push-object", "pull-object", "confirm-message-received"),
]


@pytest.mark.parametrize("call", FLEET_CALLS)
def test_the_fleet_api_passes(call: str) -> None:
    headers = {"flwr-signature": "s", "content-type": "application/x-protobuf", "cookie": "c"}
    got = ask("POST", f"/v1/fleet/{call}", content=b"\0body", headers=headers)
    assert (got.status_code, got.content) == (200, b"answer to \0body")
    assert got.headers["flwr-version"] == "1"
    assert "server" not in got.headers
    (inner,) = seen
    assert inner.url == f"http://superlink/v1/fleet/{call}"
    assert inner.headers["flwr-signature"] == "s"
    assert "cookie" not in inner.headers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol%2fstart-run",
        "/v1/fleet/..",
        "/v1/fleet/%2e%2e",
        "/v1/fleet/",
        "/v1/fleet//v1/control/start-run",
        "/v1/Fleet/pull-messages",
        "/health",
        "/docs",
        "/openapi.json",
        "/",
    ],
)
def test_nothing_else_passes(path: str) -> None:
    assert ask("POST", path, content=b"x").status_code == 404
    assert ask("GET", path).status_code in (404, 405)
    assert seen == []


def test_only_posts_pass() -> None:
    for method in ("GET", "PUT", "DELETE", "OPTIONS"):
        assert ask(method, "/v1/fleet/pull-messages").status_code == 405
    assert seen == []


def test_large_requests_are_refused_even_if_they_hide_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "LARGEST", 1000)
    assert ask("POST", "/v1/fleet/push-object", content=b"x" * 1000).status_code == 200
    assert ask("POST", "/v1/fleet/push-object", content=b"x" * 1001).status_code == 413
    assert seen == []

    async def hidden() -> Any:
        for _ in range(11):
            yield b"x" * 100

    assert ask("POST", "/v1/fleet/push-object", content=hidden()).status_code == 413


def test_a_refused_node_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def refusing(request: Any) -> Any:
        return httpx.Response(401)

    assert ask("POST", "/v1/fleet/activate-node", refusing, content=b"x").status_code == 401
    assert "a node at 127.0.0.1 is refused: its key is not registered" in caplog.text


def test_a_superlink_that_is_down_is_tried_again_later() -> None:
    def down(request: Any) -> Any:
        raise httpx.ConnectError("refused")

    assert ask("POST", "/v1/fleet/pull-messages", down, content=b"x").status_code == 503


def test_the_gate_knows_every_call_of_the_fleet_api() -> None:
    """What Flower's own client calls; this fails if another version calls more."""
    source = pytest.importorskip("flwr.supernode.fleet_http_client", reason="flwr is not installed")
    from pathlib import Path
    from re import findall

    text = Path(source.__file__).read_text(encoding="utf-8")
    assert set(findall(r'path="/v1/fleet/([^"]+)"', text)) == set(FLEET_CALLS)
