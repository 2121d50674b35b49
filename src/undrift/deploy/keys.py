"""Keys and certificates of a deployment: its authority, the server's certificate, nodes' keys."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.config import UndriftError
from undrift.system.extras import require
from undrift.system.files import replace_file, writing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

YEARS = timedelta(days=5 * 365)
"""how long certificates are valid"""

AUTHORITY, SERVER = "ca", "server"


def certificate(folder: Path, name: str = AUTHORITY) -> Path:
    """The certificate of the authority or the server."""
    return folder / f"{name}.crt"


def private_key(folder: Path, name: str = SERVER) -> Path:
    """The private key of the authority, the server or a node."""
    return folder / f"{name}.key"


def public_key(folder: Path, node: str) -> Path:
    """The public key of a node."""
    return folder / f"{node}.pub"


def nodes(folder: Path) -> list[str]:
    """The names of all nodes that have a public key, in the order of their numbers."""
    return sorted((path.stem for path in folder.glob("*.pub")), key=_in_order)


def make_authority(folder: Path) -> None:
    """Make the authority that signs the server's certificate, if there is none yet."""
    x509 = _x509()
    if certificate(folder).exists():
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    key, name = _new_key(), _name("undrift deployment authority")
    signs = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = _sign(
        name,
        key,
        name,
        key,
        [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (signs, True),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        ],
    )
    _write_secret(private_key(folder, AUTHORITY), key, "PKCS8")
    replace_file(certificate(folder), _pem(made))


def make_server(folder: Path, hosts: Sequence[str]) -> None:
    """Make the server's key and a certificate for these names and addresses, and for loopback."""
    x509 = _x509()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    authority = x509.load_pem_x509_certificate(certificate(folder).read_bytes())
    signer = load_pem_private_key(private_key(folder, AUTHORITY).read_bytes(), None)
    key = _new_key()
    names = dict.fromkeys(["127.0.0.1", "localhost", *hosts])
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = _sign(
        _name(hosts[0] if hosts else "localhost"),
        key,
        authority.subject,
        signer,
        [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName([_general_name(one) for one in names]), False),
            (x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
            (own, False),
        ],
    )
    _write_secret(private_key(folder), key, "PKCS8")
    replace_file(certificate(folder, SERVER), _pem(made))


def make_node(folder: Path, node: str) -> None:
    """Make the key pair of a node (P-384, in the format of OpenSSH)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", node) or node in (AUTHORITY, SERVER):
        raise UndriftError(f"{node!r} cannot name a node; use letters, digits, - and _")
    if public_key(folder, node).exists():
        raise UndriftError(f"{public_key(folder, node)} exists already; give another name")
    key = _new_key()
    _write_secret(private_key(folder, node), key, "OpenSSH")
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    replace_file(public_key(folder, node), public)


def _x509() -> Any:
    require("cryptography", "flower", "undrift deploy")
    from cryptography import x509

    return x509


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _sign(
    subject: Any, key: Any, issuer: Any, signer: Any, extensions: Sequence[tuple[Any, bool]]
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # devices' clocks may be behind
        .not_valid_after(now + YEARS)
    )
    for extension, critical in extensions:
        made = made.add_extension(extension, critical)
    return made.sign(signer, hashes.SHA256())


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise UndriftError(f"{host!r} is neither a host name nor an address, such as 10.0.0.5")
    return x509.DNSName(host)


def _pem(made: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return made.public_bytes(Encoding.PEM)


def _write_secret(path: Path, key: Any, form: str) -> None:
    """Write a private key that only its owner can read, from the first moment on."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    content = key.private_bytes(Encoding.PEM, getattr(PrivateFormat, form), NoEncryption())
    with writing(path):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "wb") as file:
            os.fchmod(opened, 0o600)
            file.write(content)


def _in_order(name: str) -> tuple[str, int, str]:
    """node-2 comes before node-10."""
    found = re.fullmatch(r"(.*?)(\d*)", name)
    assert found is not None
    return found[1], int(found[2] or 0), name
