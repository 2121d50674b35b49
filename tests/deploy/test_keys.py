"""Keys and certificates: a TLS server that they make is believed, and others are not."""

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from undrift.config import UndriftError
from undrift.deploy import keys

pytest.importorskip("cryptography", reason="cryptography is not installed (undrift[flower])")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys.make_authority(tmp_path / "keys")
    return tmp_path / "keys"


def handshake(folder: Path, trusted: Path, host: str) -> None:
    """Connect to a TLS server with the folder's certificate; raises if it is not believed."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys.certificate(folder, keys.SERVER), keys.private_key(folder))
    client = ssl.create_default_context(cafile=str(trusted))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, suppress(OSError):
            server.wrap_socket(theirs, server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours:
            client.wrap_socket(ours, server_hostname=host).close()
    finally:
        thread.join()


def test_the_server_is_believed_under_its_names_alone(folder: Path) -> None:
    keys.make_server(folder, ["10.1.2.3", "fl.example.org"])
    for host in ("127.0.0.1", "localhost", "10.1.2.3", "fl.example.org"):
        handshake(folder, keys.certificate(folder), host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(folder, keys.certificate(folder), "other.example.org")


def test_another_authority_is_not_believed(folder: Path, tmp_path: Path) -> None:
    keys.make_server(folder, [])
    keys.make_authority(tmp_path / "others")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(folder, keys.certificate(tmp_path / "others"), "localhost")


def test_an_authority_is_made_once(folder: Path) -> None:
    before = keys.certificate(folder).read_bytes()
    keys.make_authority(folder)
    assert keys.certificate(folder).read_bytes() == before


def test_secrets_are_for_their_owner_alone(folder: Path) -> None:
    keys.make_server(folder, [])
    keys.make_node(folder, "node-1")
    assert folder.stat().st_mode & 0o077 == 0
    for name in (keys.AUTHORITY, keys.SERVER, "node-1"):
        assert keys.private_key(folder, name).stat().st_mode & 0o077 == 0


def test_a_nodes_key_is_a_pair_on_p384(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey

    keys.make_node(folder, "node-1")
    secret = serialization.load_ssh_private_key(
        keys.private_key(folder, "node-1").read_bytes(), None
    )
    public = serialization.load_ssh_public_key(keys.public_key(folder, "node-1").read_bytes())
    assert isinstance(public, EllipticCurvePublicKey)
    assert isinstance(public.curve, SECP384R1)
    assert secret.public_key() == public


def test_nodes_are_in_the_order_of_their_numbers(folder: Path) -> None:
    for name in ("node-10", "node-2", "ward"):
        keys.make_node(folder, name)
    assert keys.nodes(folder) == ["node-2", "node-10", "ward"]


@pytest.mark.parametrize("name", ["", "../x", "a b", "ca", "server", ".hidden"])
def test_a_node_has_a_plain_name(folder: Path, name: str) -> None:
    with pytest.raises(UndriftError, match="cannot name a node"):
        keys.make_node(folder, name)


def test_a_key_is_never_overwritten(folder: Path) -> None:
    keys.make_node(folder, "node-1")
    with pytest.raises(UndriftError, match="exists already"):
        keys.make_node(folder, "node-1")


def test_a_host_is_a_name_or_an_address(folder: Path) -> None:
    with pytest.raises(UndriftError, match="neither a host name nor an address"):
        keys.make_server(folder, ["https://fl.example.org"])
