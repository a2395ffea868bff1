"""Reads a process's certificate, key and CA from a folder, and judges them before they are used.

The files have the names of a Kubernetes TLS secret, so that one made by cert-manager can be mounted as it is.
"""

from __future__ import annotations

import datetime
import itertools
import logging
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from common.errors import ConfigError
from common.net.peer_role import PeerRole, roles_of
from common.net.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE, TlsIdentity

logger = logging.getLogger(__name__)

EXPIRES_SOON = datetime.timedelta(days=14)


def load_identity(tls_dir: str, *roles: PeerRole) -> TlsIdentity:
    """The identity of a process that may have any of the roles.

    It lies in `tls_dir`, or in the folder of the first of the roles that there is in it, as `slipstream certs` makes
    them. Raises ConfigError that says what to do when it can't serve.
    """
    folder = _folder(Path(tls_dir), roles)
    ca, certificate, key = (_read(folder, name) for name in (CA_FILE, CERTIFICATE_FILE, KEY_FILE))
    _check(folder, ca, certificate, key, roles)
    return TlsIdentity(folder=folder, ca=ca, certificate=certificate, key=key)


def load_caller_identity(tls_dir: str) -> TlsIdentity:
    """The identity of a caller of routers: with a certificate, or the CA alone. Raises ConfigError."""
    roles = (PeerRole.OPERATOR, PeerRole.CLIENT)
    folder = _folder(Path(tls_dir), roles)
    if (folder / CERTIFICATE_FILE).exists() or (folder / KEY_FILE).exists():
        return load_identity(tls_dir, *roles)
    ca = _read(folder, CA_FILE)
    _parse(folder / CA_FILE, ca)
    return TlsIdentity(folder=folder, ca=ca)


def _folder(tls_dir: Path, roles: tuple[PeerRole, ...]) -> Path:
    return next((tls_dir / role for role in roles if (tls_dir / role / CERTIFICATE_FILE).exists()), tls_dir)


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            "tls_dir",
            f"{folder} has no {name}: it must hold {CA_FILE}, {CERTIFICATE_FILE} and {KEY_FILE}, or be a folder that "
            "`slipstream certs` made",
        ) from None
    except OSError as error:
        raise ConfigError("tls_dir", f"{folder / name} can't be read: {error.strerror}") from None


def _parse(path: Path, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ConfigError("tls_dir", f"{path} is no certificate in PEM form") from None


def _check(folder: Path, ca: bytes, certificate: bytes, key: bytes, roles: tuple[PeerRole, ...]) -> None:
    path = folder / CERTIFICATE_FILE
    authorities = _parse(folder / CA_FILE, ca)
    chain = _parse(path, certificate)
    leaf = chain[0]
    if not _is_issued_by(chain, authorities):
        raise ConfigError(
            "tls_dir", f"{path} was not issued by the CA of {folder / CA_FILE}: take both from the same fleet"
        )
    _check_time(path, leaf)
    _check_key(folder / KEY_FILE, key, leaf)
    if not roles_of(dns_names(leaf)) & set(roles):
        wanted = " or ".join(role.dns_name for role in roles)
        raise ConfigError(
            "tls_dir",
            f"{path} is for {', '.join(dns_names(leaf)) or 'no name'}, and not for {wanted}: this process needs a "
            "certificate with that DNS name",
        )


def _check_time(path: Path, leaf: x509.Certificate) -> None:
    now, start, end = datetime.datetime.now(datetime.UTC), leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if now < start:
        raise ConfigError(
            "tls_dir", f"{path} is valid from {start:%Y-%m-%d %H:%M} UTC on: is this machine's clock right?"
        )
    if now > end:
        raise ConfigError(
            "tls_dir",
            f"{path} expired on {end:%Y-%m-%d %H:%M} UTC: renew it (`slipstream certs` issues new ones from the CA "
            "that it has made) and start again",
        )
    if end - now < EXPIRES_SOON:
        logger.warning("%s expires on %s UTC: renew it, and restart what uses it", path, f"{end:%Y-%m-%d %H:%M}")


def _check_key(path: Path, key: bytes, leaf: x509.Certificate) -> None:
    try:
        public = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError):  # TypeError: it is encrypted
        raise ConfigError("tls_dir", f"{path} is no private key in PEM form without a password") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise ConfigError("tls_dir", f"{path} is not the key of {CERTIFICATE_FILE} beside it")


def _is_issued_by(chain: list[x509.Certificate], authorities: list[x509.Certificate]) -> bool:
    """Whether each certificate was issued by the next, and the last by one of the authorities."""
    links = all(_issued(one, by) for one, by in itertools.pairwise(chain))
    return links and any(chain[-1] == authority or _issued(chain[-1], authority) for authority in authorities)


def _issued(one: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        one.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def dns_names(certificate: x509.Certificate) -> list[str]:
    """The DNS names among a certificate's subject alternative names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)
