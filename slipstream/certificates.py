"""A CA of one fleet and the certificates of its processes, for development and for fleets without a CA of their own.

Writes `ca.crt` and `ca.key`, and a folder for each role with `ca.crt`, `tls.crt` and `tls.key`: what `--tls-dir` takes,
as a whole or one role's folder.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.errors import ConfigError
from common.net.peer_role import PeerRole
from common.net.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE

CA_KEY_FILE = "ca.key"
CA_DAYS = 3650
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$)(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Clocks of machines differ a little.
_BACKDATED = datetime.timedelta(minutes=5)
_SERVERS = frozenset({PeerRole.ROUTER, PeerRole.WORKER, PeerRole.INDEX})


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class _Validity:
    start: datetime.datetime
    length: datetime.timedelta


def make_certificates(folder: Path, hosts: Sequence[str], days: int, *, start: datetime.datetime | None = None) -> bool:
    """Certificates for all roles, good for `days` from `start` (None: now); those of servers also name `hosts`.

    The CA of the folder is used where there is one, so that what it has issued before stays good; hosts that it has
    named stay named. Whether a new one was made. Raises ConfigError when the folder can't be read or written.
    """
    try:
        named = [*map(_general_name, (*LOOPBACK, *hosts)), *_named_before(folder)]
        names = list(dict.fromkeys(named))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        start = start or datetime.datetime.now(datetime.UTC)
        is_new = not (folder / CA_FILE).exists()
        authority = _make_authority(folder, start) if is_new else _read_authority(folder)
        for role in PeerRole:
            _issue(folder / role, authority, role, names, _Validity(start, datetime.timedelta(days=days)))
    except OSError as error:
        raise ConfigError("certs", f"{error.filename or folder} can't be written: {error.strerror}") from None
    return is_new


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    if not _DNS_NAME.fullmatch(host):
        raise ConfigError("host", f"must be a DNS name or an IP address, is {host!r}")
    return x509.DNSName(host)


def _named_before(folder: Path) -> list[x509.GeneralName]:
    """Hosts of the router's certificate: who renews it and forgets one would lock its callers out."""
    path = folder / PeerRole.ROUTER / CERTIFICATE_FILE
    if not path.exists():
        return []
    try:
        extensions = x509.load_pem_x509_certificate(path.read_bytes()).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise ConfigError("certs", f"{path} can't be read as a certificate: remove it to make it anew") from None
    return [name for name in names if name != x509.DNSName(PeerRole.ROUTER.dns_name)]


def _make_authority(folder: Path, start: datetime.datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Slipstream fleet {secrets.token_hex(4)}")])
    certificate = (
        _builder(name, name, key.public_key(), _Validity(start, datetime.timedelta(days=CA_DAYS)))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder / CA_KEY_FILE, _key_pem(key), mode=0o600)
    _write(folder / CA_FILE, certificate.public_bytes(Encoding.PEM), mode=0o644)
    return _Authority(certificate, key)


def _read_authority(folder: Path) -> _Authority:
    try:
        certificate = x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes())
        key = load_pem_private_key((folder / CA_KEY_FILE).read_bytes(), password=None)
    except FileNotFoundError:
        raise ConfigError(
            "certs", f"{folder} has {CA_FILE} without {CA_KEY_FILE}, which its certificates are signed with"
        ) from None
    except (ValueError, TypeError):
        raise ConfigError("certs", f"{folder}: {CA_FILE} and {CA_KEY_FILE} can't be read as PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError("certs", f"{folder}: {CA_KEY_FILE} is not the key of {CA_FILE}")
    return _Authority(certificate, key)


def _issue(
    folder: Path, authority: _Authority, role: PeerRole, hosts: list[x509.GeneralName], valid: _Validity
) -> None:
    folder.mkdir(exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    usages = [] if role is PeerRole.INDEX else [ExtendedKeyUsageOID.CLIENT_AUTH]
    names: list[x509.GeneralName] = [x509.DNSName(role.dns_name)]
    if role in _SERVERS:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names += hosts
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role.dns_name)])
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), valid)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write(folder / KEY_FILE, _key_pem(key), mode=0o600)
    _write(folder / CERTIFICATE_FILE, certificate.public_bytes(Encoding.PEM), mode=0o644)
    _write(folder / CA_FILE, issuer.public_bytes(Encoding.PEM), mode=0o644)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: _Validity
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(valid.start - _BACKDATED).not_valid_after(valid.start + valid.length)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Never readable by others, not even for a moment, and never half there."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    temporary.replace(path)
