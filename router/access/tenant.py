"""Tenants as their file says them.

[tenants.search]
keys = ["sha256:…"]             # `slipstream key` makes a key and its hash
requests_per_s = 10             # absent: no limit
tokens_per_s = 20000            # prompt and generated tokens
max_concurrent_requests = 32
operator = false                # may also use Admin and /metrics
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import ConfigError
from router.access.api_key import is_hash

_SETTINGS = ("keys", "operator", "requests_per_s", "tokens_per_s", "max_concurrent_requests")
_LIMITS = ("requests_per_s", "tokens_per_s", "max_concurrent_requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None: no limit. They hold at each router by itself."""

    requests_per_s: float | None = None
    tokens_per_s: float | None = None  # prompt and generated tokens
    max_concurrent_requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Whose requests these are. Its name is part of the keys of its cached blocks."""

    name: str
    operator: bool = False
    limits: Limits = Limits()


def read_tenants(path: Path) -> Mapping[str, Tenant]:
    """Tenants by the hash of each of their keys. Raises ConfigError that names the place."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("api_keys", f"{path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("api_keys", f"{path} is not valid TOML: {error}") from None
    unknown = sorted(document.keys() - {"tenants"})
    if unknown:
        raise ConfigError("api_keys", f"{path}: {unknown[0]} is unknown; it has tables [tenants.NAME]")
    tenants: dict[str, Tenant] = {}
    for name, entry in _table(path, "tenants", document.get("tenants", {})).items():
        tenant, hashes = _tenant(path, name, entry)
        for one in hashes:
            if one in tenants:
                raise ConfigError("api_keys", f"{path}: tenants.{name} and tenants.{tenants[one].name} share a key")
            tenants[one] = tenant
    return tenants


def _tenant(path: Path, name: str, entry: Any) -> tuple[Tenant, list[str]]:
    place = f"tenants.{name}"
    given = _table(path, place, entry)
    if not name.strip():
        raise ConfigError("api_keys", f"{path}: a tenant's name must not be empty")
    for key in given:
        if key not in _SETTINGS:
            raise ConfigError("api_keys", f"{path}: {place}.{key} is unknown; known: {', '.join(_SETTINGS)}")
    keys = given.get("keys", [])
    # A key that stands there itself must not end up in a message.
    if not isinstance(keys, list) or not all(isinstance(key, str) and is_hash(key) for key in keys):
        raise ConfigError("api_keys", f"{path}: {place}.keys must be a list of hashes, as `slipstream key` prints them")
    operator = given.get("operator", False)
    if not isinstance(operator, bool):
        raise ConfigError("api_keys", f"{path}: {place}.operator must be true or false")
    limits = Limits(**{name: _limit(path, place, name, given[name]) for name in _LIMITS if name in given})
    return Tenant(name=name, operator=operator, limits=limits), keys


def _limit(path: Path, place: str, name: str, value: Any) -> Any:
    whole = name == "max_concurrent_requests"
    kinds = (int,) if whole else (int, float)
    if type(value) not in kinds or not math.isfinite(value) or value <= 0 or (whole and value < 1):
        what = "a whole number from 1" if whole else "a number above 0"
        raise ConfigError("api_keys", f"{path}: {place}.{name} must be {what}, is {value!r}")
    return value


def _table(path: Path, place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError("api_keys", f"{path}: {place} must be a table")
    return value
