"""The federation's own certificate authority, the server's certificate, and the keys by which Flower knows its nodes.

The authority signs one thing, the server's certificate, and parties trust nobody else for it: no public authority can
speak for the server. Node keys are not certified; the server knows each by its public key (`nodes/<name>.pub`).
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from covey.errors import CoveyError

YEAR = datetime.timedelta(days=365)
AUTHORITY_YEARS, SERVER_YEARS = 10, 2
CLOCKS = datetime.timedelta(hours=24)  # that a party's clock may be behind
LOCAL = ("localhost", "127.0.0.1", "::1")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*", re.IGNORECASE)
_Constraints = tuple[x509.ExtensionType, bool]


@dataclass(frozen=True)
class Pair:
    """A certificate or public key, and the private key of it."""

    public: bytes
    private: bytes = field(repr=False)


def make_authority() -> Pair:
    """A certificate (PEM) that can sign others, but no other authority."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = _named("covey federation authority")
    extensions: list[_Constraints] = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(certificates=True), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ]
    return Pair(_certificate(name, name, key.public_key(), key, AUTHORITY_YEARS, extensions), _pem(key))


def issue_server(authority: Pair, hosts: Sequence[str]) -> Pair:
    """A certificate (PEM) for a server under these names and addresses, and always under this machine's own."""
    signer = serialization.load_pem_private_key(authority.private, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.public)
    key = ec.generate_private_key(ec.SECP384R1())
    names = [general_name(host) for host in dict.fromkeys([*hosts, *LOCAL])]
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    extensions: list[_Constraints] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(names), False),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
    ]
    name = _named("covey federation server")
    return Pair(_certificate(name, issuer.subject, key.public_key(), signer, SERVER_YEARS, extensions), _pem(key))


def check_server(certificate: bytes, key: bytes, authority: bytes) -> None:
    """Refuses a server's certificate that its key, or parties who trust the authority, do not fit."""
    try:
        shown, issuer = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(authority)
        shown.verify_directly_issued_by(issuer)
        held = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, InvalidSignature) as e:
        raise CoveyError("the server's certificate is none of this federation's authority, or cannot be read") from e
    if held.public_key() != shown.public_key():
        raise CoveyError("the server's certificate and key do not belong together: copy both again")


def make_node() -> Pair:
    """An ECDSA P-384 key in OpenSSH's form, which Flower's SuperNode and `flwr supernode register` read."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return Pair(public + b"\n", secret)


def registered(public: bytes) -> bytes:
    """A node's public key, from OpenSSH's form to the one in which Flower's Control API takes it."""
    try:
        key = serialization.load_ssh_public_key(public)
    except (ValueError, NotImplementedError, UnsupportedAlgorithm) as e:
        raise CoveyError(f"a node's public key cannot be read ({e}): copy its .pub file again") from e
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def general_name(host: str) -> x509.GeneralName:
    """A host as certificates name it: an address or a name; refuses what is neither."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST.fullmatch(host) or len(host) > 253 or re.fullmatch(r"[\d.]+", host):
        raise CoveyError(f"'{host}' is no host name or address: write it without port or scheme, e.g. fed.example.org")
    return x509.DNSName(host)


def _named(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate(
    name: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    years: int,
    extensions: list[_Constraints],
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCKS).not_valid_after(now + years * YEAR)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
