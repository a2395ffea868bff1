"""What is said about certificates that can't be used, before a process begins to serve."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import ConfigError
from common.net.peer_role import PeerRole
from common.net.tls_folder import load_caller_identity, load_identity
from tests.support.certificates import make_early, make_expired, make_fleet


def test_the_folder_of_ones_own_role_is_taken(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path)
    for role in PeerRole:
        identity = load_identity(str(fleet), role)
        assert identity.certificate == (fleet / role / "tls.crt").read_bytes()
        assert load_identity(str(fleet / role), role) == identity


def test_a_caller_takes_what_lets_it_do_most(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path)
    assert load_caller_identity(str(fleet)).folder == fleet / "operator"
    shutil.rmtree(fleet / "operator")
    assert load_caller_identity(str(fleet)).folder == fleet / "client"


def test_a_caller_with_a_key_needs_the_ca_alone(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "fleet")
    (tmp_path / "public").mkdir()
    shutil.copy(fleet / "ca.crt", tmp_path / "public" / "ca.crt")
    identity = load_caller_identity(str(tmp_path / "public"))
    assert identity.ca == (fleet / "ca.crt").read_bytes() and identity.certificate is None


def _without_key(folder: Path) -> None:
    (folder / "tls.key").unlink()


def _with_another_ca(folder: Path) -> None:
    other = make_fleet(folder.parent / "other")
    shutil.copy(other / "ca.crt", folder / "ca.crt")


def _with_another_key(folder: Path) -> None:
    shutil.copy(folder.parent / "client" / "tls.key", folder / "tls.key")


def _with_no_pem(folder: Path) -> None:
    (folder / "tls.crt").write_text("certificate")


def _with_no_pem_key(folder: Path) -> None:
    (folder / "tls.key").write_text("key")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_key, r"has no tls\.key: it must hold ca\.crt, tls\.crt and tls\.key.*slipstream certs"),
        (_with_another_ca, "was not issued by the CA"),
        (_with_another_key, "is not the key of tls.crt"),
        (_with_no_pem, "no certificate in PEM form"),
        (_with_no_pem_key, "no private key in PEM form"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    folder = make_fleet(tmp_path / "fleet") / "worker"
    spoil(folder)
    with pytest.raises(ConfigError, match=message):
        load_identity(str(folder), PeerRole.WORKER)


@pytest.mark.parametrize(
    ("make", "message"),
    [(make_expired, "expired on .*: renew it.*slipstream certs"), (make_early, "is this machine's clock right")],
)
def test_certificates_out_of_their_time_are_refused(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_identity(str(make(tmp_path)), PeerRole.ROUTER)


def test_a_certificate_for_another_role_is_refused(tmp_path: Path) -> None:
    folder = make_fleet(tmp_path) / "client"
    with pytest.raises(ConfigError, match=r"and not for worker\.slipstream\.internal"):
        load_identity(str(folder), PeerRole.WORKER)
