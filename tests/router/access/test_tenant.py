"""The file of tenants: what it may say, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import ConfigError
from router.access.api_key import hash_key, mint_key
from router.access.tenant import Limits, read_tenants

HASH = hash_key("slipstream-one")


def write(folder: Path, text: str) -> Path:
    path = folder / "tenants.toml"
    path.write_text(text)
    return path


def test_keys_are_random_and_only_their_hashes_are_kept() -> None:
    one, other = mint_key(), mint_key()
    assert one != other and one.startswith("slipstream-") and len(one) > 50
    assert one not in hash_key(one) and hash_key(one) != hash_key(other)


def test_tenants_are_found_by_their_keys(tmp_path: Path) -> None:
    other = hash_key("slipstream-other")
    path = write(
        tmp_path,
        f"""
        [tenants.search]
        keys = ["{HASH}", "{other}"]
        requests_per_s = 0.5
        tokens_per_s = 20000
        max_concurrent_requests = 32
        [tenants.ops]
        keys = ["{hash_key("slipstream-ops")}"]
        operator = true
        """,
    )
    tenants = read_tenants(path)
    assert tenants[HASH] is tenants[other] and tenants[HASH].name == "search" and not tenants[HASH].operator
    assert tenants[HASH].limits == Limits(requests_per_s=0.5, tokens_per_s=20000, max_concurrent_requests=32)
    ops = tenants[hash_key("slipstream-ops")]
    assert ops.operator and ops.limits == Limits()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tenants =", "is not valid TOML"),
        ("[tenant.a]", r"tenant is unknown; it has tables \[tenants.NAME\]"),
        ("tenants = 3", "tenants must be a table"),
        ("[tenants]\na = 3", "tenants.a must be a table"),
        ('[tenants."  "]', "name must not be empty"),
        ("[tenants.a]\nkey = 1", "tenants.a.key is unknown; known: keys, operator"),
        ('[tenants.a]\nkeys = ["slipstream-secret"]', "tenants.a.keys must be a list of hashes"),
        ("[tenants.a]\noperator = 1", "tenants.a.operator must be true or false"),
        ("[tenants.a]\nrequests_per_s = 0", "tenants.a.requests_per_s must be a number above 0, is 0"),
        ("[tenants.a]\ntokens_per_s = inf", "tenants.a.tokens_per_s must be a number above 0, is inf"),
        ("[tenants.a]\nmax_concurrent_requests = 1.5", "max_concurrent_requests must be a whole number from 1, is 1.5"),
        ("[tenants.a]\nrequests_per_s = true", "requests_per_s must be a number above 0, is True"),
        (f'[tenants.a]\nkeys = ["{HASH}"]\n[tenants.b]\nkeys = ["{HASH}"]', "tenants.b and tenants.a share a key"),
    ],
)
def test_what_it_may_not_say(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_tenants(write(tmp_path, text))
    assert "secret" not in str(caught.value)


def test_a_file_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        read_tenants(tmp_path / "tenants.toml")
