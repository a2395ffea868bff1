import hashlib
import struct

import pytest

from common.kv.block_key import KeyRoot, block_keys, golden_key, root_key, root_with_salt


def make_root(**changes: object) -> KeyRoot:
    fields: dict[str, object] = {
        "model_fingerprint": b"m" * 16,
        "weight_dtype": "float32",
        "kv_dtype": "float32",
        "layout_fingerprint": b"l" * 16,
        "block_size": 16,
    }
    return KeyRoot(**{**fields, **changes})  # type: ignore[arg-type]


def test_golden_key_is_the_known_vector() -> None:
    assert golden_key().hex() == "fdb2d96562a3ef1a29716da9b3ba1816"


def test_a_key_is_the_digest_of_parent_and_little_endian_ids() -> None:
    root = root_with_salt(root_key(make_root()), b"")
    first, second = block_keys(root, [1, 2, 3, 4], 2)
    assert first == hashlib.blake2b(root + struct.pack("<2I", 1, 2), digest_size=16).digest()
    assert second == hashlib.blake2b(first + struct.pack("<2I", 3, 4), digest_size=16).digest()


def test_a_partial_last_block_has_no_key() -> None:
    root = root_key(make_root())
    assert block_keys(root, [1, 2, 3], 2) == block_keys(root, [1, 2], 2)
    assert block_keys(root, [1], 2) == []


@pytest.mark.parametrize(
    "change",
    [
        {"model_fingerprint": b"n" * 16},
        {"weight_dtype": "bfloat16"},
        {"kv_dtype": "bfloat16"},
        {"layout_fingerprint": b"k" * 16},
        {"block_size": 32},
        {"lora_id": "a"},
        {"schema": 2},
    ],
)
def test_every_field_of_the_root_changes_it(change: dict[str, object]) -> None:
    assert root_key(make_root()) != root_key(make_root(**change))


def test_fields_can_not_run_into_each_other() -> None:
    one = make_root(weight_dtype="ab", kv_dtype="c")
    other = make_root(weight_dtype="a", kv_dtype="bc")
    assert root_key(one) != root_key(other)


def test_salts_separate_tenants() -> None:
    root = root_key(make_root())
    assert len({root_with_salt(root, salt) for salt in (b"", b"a", b"b", b"a\0")}) == 4
