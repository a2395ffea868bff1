"""API keys: random enough that a plain hash of one tells nothing, and never kept in the clear."""

from __future__ import annotations

import hashlib
import re
import secrets

PREFIX = "slipstream-"  # scanners for leaked secrets find it by that
_KEY_BYTES = 32
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def mint_key() -> str:
    """A new key: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def hash_key(key: str) -> str:
    """What the file of tenants holds. SHA-256 is enough: keys are not passwords, nobody can guess their way to one."""
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None
