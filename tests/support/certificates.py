"""Certificates of fleets, also such as nobody should accept."""

from __future__ import annotations

import datetime
from pathlib import Path

from slipstream.certificates import make_certificates


def make_fleet(folder: Path) -> Path:
    """A CA and certificates for all roles on this machine. A CA that is there already is kept."""
    make_certificates(folder, (), days=30)
    return folder


def make_expired(folder: Path) -> Path:
    """Certificates that were good until yesterday."""
    make_certificates(folder, (), days=1, start=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2))
    return folder


def make_early(folder: Path) -> Path:
    """Certificates that are good from tomorrow on."""
    make_certificates(folder, (), days=1, start=datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1))
    return folder
