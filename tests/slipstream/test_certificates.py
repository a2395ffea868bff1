"""Certificates of a development CA: what they say, who may read them, and how they are renewed."""

from __future__ import annotations

import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.errors import ConfigError
from common.net.peer_role import PeerRole
from slipstream.certificates import make_certificates

SERVERS = (PeerRole.ROUTER, PeerRole.WORKER, PeerRole.INDEX)


def certificate(folder: Path, role: PeerRole) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / role / "tls.crt").read_bytes())


def names(one: x509.Certificate) -> tuple[set[str], set[str]]:
    """DNS names and addresses."""
    found = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = found.get_values_for_type(x509.IPAddress)
    return set(found.get_values_for_type(x509.DNSName)), {str(address) for address in addresses}


def test_each_role_has_a_name_and_servers_their_hosts(tmp_path: Path) -> None:
    assert make_certificates(tmp_path, ["llm.example.com", "10.0.0.1", "[fd00::1]"], days=30)
    hosts = {"localhost", "llm.example.com"}
    addresses = {"127.0.0.1", "::1", "10.0.0.1", str(ipaddress.ip_address("fd00::1"))}
    for role in SERVERS:
        assert names(certificate(tmp_path, role)) == ({role.dns_name, *hosts}, addresses)
    for role in (PeerRole.CLIENT, PeerRole.OPERATOR):
        assert names(certificate(tmp_path, role)) == ({role.dns_name}, set())


def test_callers_can_t_serve_and_the_index_can_t_call(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], days=30)
    for role in PeerRole:
        usage = certificate(tmp_path, role).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) is (role in SERVERS)
        assert (ExtendedKeyUsageOID.CLIENT_AUTH in usage) is (role is not PeerRole.INDEX)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_certificates(tmp_path / "tls", [], days=30)
    keys = sorted((tmp_path / "tls").rglob("*.key"))
    assert len(keys) == 1 + len(PeerRole)
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700


def test_what_is_renewed_has_the_same_ca(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], days=30)
    ca, old = (tmp_path / "ca.crt").read_bytes(), certificate(tmp_path, PeerRole.WORKER)
    assert not make_certificates(tmp_path, [], days=60)
    renewed = certificate(tmp_path, PeerRole.WORKER)
    assert (tmp_path / "ca.crt").read_bytes() == ca
    assert renewed.serial_number != old.serial_number and renewed.not_valid_after_utc > old.not_valid_after_utc
    renewed.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))


def test_what_is_renewed_names_the_same_hosts(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["llm.example.com"], days=30)
    make_certificates(tmp_path, ["10.0.0.1"], days=30)
    dns_names, addresses = names(certificate(tmp_path, PeerRole.WORKER))
    assert dns_names == {PeerRole.WORKER.dns_name, "localhost", "llm.example.com"}
    assert addresses == {"127.0.0.1", "::1", "10.0.0.1"}


def test_a_ca_without_its_key_can_t_issue(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], days=30)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(ConfigError, match=r"has ca\.crt without ca\.key"):
        make_certificates(tmp_path, [], days=30)


@pytest.mark.parametrize("host", ["b\xfccher", "bad host!", "", "-a.example", "a..example"])
def test_a_host_that_is_no_name(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="host: must be a DNS name or an IP address, is "):
        make_certificates(tmp_path, [host], days=30)


def test_a_wildcard_is_a_host(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["*.example.com"], days=30)
    assert "*.example.com" in names(certificate(tmp_path, PeerRole.ROUTER))[0]
