import pytest

from common.errors import UnsupportedModelError
from common.kv.spec import KVCacheGroup, KVCacheKind, KVCacheSpec


def make_group(**changes: object) -> KVCacheGroup:
    fields: dict[str, object] = {
        "group_id": 0,
        "layers": (0, 1, 2),
        "num_kv_heads": 3,
        "head_dim": 64,
        "block_size": 16,
        "dtype": "bfloat16",
    }
    return KVCacheGroup(**{**fields, **changes})  # type: ignore[arg-type]


def test_bytes_per_block_is_the_size_of_the_slab() -> None:
    assert make_group().bytes_per_block == 3 * 2 * 3 * 16 * 64 * 2


def test_a_spec_sums_its_groups() -> None:
    spec = KVCacheSpec(groups=(make_group(), make_group(group_id=1, layers=(3,))))
    assert spec.bytes_per_block == 4 * 2 * 3 * 16 * 64 * 2


@pytest.mark.parametrize(
    "change",
    [
        {"layers": (0, 1)},
        {"num_kv_heads": 4},
        {"head_dim": 32},
        {"block_size": 32},
        {"dtype": "float16"},
        {"kind": KVCacheKind.WINDOW},
    ],
)
def test_every_field_changes_the_fingerprint(change: dict[str, object]) -> None:
    fingerprint = KVCacheSpec(groups=(make_group(),)).fingerprint()
    assert len(fingerprint) == 16
    assert fingerprint == KVCacheSpec(groups=(make_group(),)).fingerprint()
    assert fingerprint != KVCacheSpec(groups=(make_group(**change),)).fingerprint()


@pytest.mark.parametrize("kind", [KVCacheKind.WINDOW, KVCacheKind.LATENT, KVCacheKind.STATE])
def test_kinds_that_are_not_built_are_refused_by_name(kind: KVCacheKind) -> None:
    spec = KVCacheSpec(groups=(make_group(kind=kind),))
    with pytest.raises(UnsupportedModelError, match=kind.name.lower()):
        spec.check_supported()


@pytest.mark.parametrize(
    "change",
    [{"layers": ()}, {"layers": (1, 1)}, {"num_kv_heads": 0}, {"dtype": "int3"}, {"num_components": 1}],
)
def test_impossible_groups_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="group"):
        make_group(**change)


def test_group_ids_count_from_zero_and_block_sizes_agree() -> None:
    with pytest.raises(ValueError, match="group ids"):
        KVCacheSpec(groups=(make_group(group_id=1),))
    with pytest.raises(ValueError, match="block size"):
        KVCacheSpec(groups=(make_group(), make_group(group_id=1, block_size=32)))
