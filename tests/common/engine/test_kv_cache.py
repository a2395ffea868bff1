import pytest
import torch

from common.engine.kv_cache import KVCache
from common.errors import UnsupportedModelError
from common.kv.manager import BlockCopy
from common.kv.spec import KVCacheGroup, KVCacheKind, KVCacheSpec
from tests.support.engine import tiny_spec


def make_cache(dtype: str = "float32", num_host_blocks: int = 0) -> KVCache:
    groups = (
        KVCacheGroup(group_id=0, layers=(0, 2), num_kv_heads=3, head_dim=4, block_size=8, dtype=dtype),
        KVCacheGroup(group_id=1, layers=(1,), num_kv_heads=1, head_dim=2, block_size=8, dtype=dtype),
    )
    spec = KVCacheSpec(groups=groups)
    return KVCache(spec=spec, num_blocks=5, device=torch.device("cpu"), num_host_blocks=num_host_blocks)


def test_layers_are_views_into_the_slabs_of_their_group() -> None:
    cache = make_cache()
    key, value = cache.layer(2)
    assert key.shape == value.shape == (5, 3, 8, 4)
    key[3, 1, 2] = 7.0
    value[3] = 9.0
    slab = torch.from_numpy(cache.block_bytes(0, 3)).view(torch.float32).view(2, 2, 3, 8, 4)
    assert slab[1, 0, 1, 2].tolist() == [7.0] * 4
    assert slab[1, 1].unique().tolist() == [9.0]
    assert slab[0].count_nonzero() == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_block_bytes_have_the_size_of_the_slab(dtype: str) -> None:
    cache = make_cache(dtype)
    for group in cache.spec.groups:
        assert cache.block_bytes(group.group_id, 0).shape == (group.bytes_per_block,)


def test_bytes_written_elsewhere_are_the_same_keys_and_values() -> None:
    source, sink = make_cache(), make_cache()
    for tensor in (*source.layer(0), *source.layer(2)):
        tensor.normal_()
    data = source.block_bytes(0, 1).tobytes()
    sink.write_block_bytes(0, 4, data[:100])
    sink.write_block_bytes(0, 4, memoryview(data)[100:], offset=100)
    for layer in (0, 2):
        for ours, theirs in zip(sink.layer(layer), source.layer(layer), strict=True):
            assert torch.equal(ours[4], theirs[1])


def test_copies_are_made_in_order_in_every_group() -> None:
    cache = make_cache()
    cache.layer(0).key[0] = 1.0
    cache.layer(1).value[0] = 2.0
    cache.copy_blocks([BlockCopy(0, 1), BlockCopy(1, 2)])
    assert cache.layer(0).key[2].unique().tolist() == [1.0]
    assert cache.layer(1).value[2].unique().tolist() == [2.0]


def test_ids_beyond_the_device_are_the_hosts() -> None:
    cache = make_cache(num_host_blocks=2)
    cache.layer(0).key[0] = 1.0
    cache.layer(1).value[0] = 2.0
    before = [cache.block_bytes(group_id, 0).tobytes() for group_id in (0, 1)]
    cache.copy_blocks([BlockCopy(0, 6)])
    cache.layer(0).key[0] = 5.0
    cache.layer(1).value[0] = 5.0
    assert [cache.block_bytes(group_id, 6).tobytes() for group_id in (0, 1)] == before
    assert not cache.block_bytes(0, 5).any()
    cache.copy_blocks([BlockCopy(6, 4)])
    assert cache.layer(0).key[4].unique().tolist() == [1.0]
    assert cache.layer(1).value[4].unique().tolist() == [2.0]
    with pytest.raises(IndexError):
        cache.block_bytes(0, 7)


def test_kinds_that_are_not_built_are_refused() -> None:
    spec = tiny_spec(8, kind=KVCacheKind.LATENT)
    with pytest.raises(UnsupportedModelError, match="latent"):
        KVCache(spec=spec, num_blocks=1, device=torch.device("cpu"))


def test_every_block_lies_in_a_tensor_that_transports_can_register() -> None:
    cache = make_cache(num_host_blocks=2)
    assert [len(raw) for raw in cache.tensors] == [5, 5, 2, 2]
    for block_id in (4, 5, 6):  # the device's last, the host's both
        block = cache.block_tensor(0, block_id)
        block.fill_(block_id)
        assert (cache.block_bytes(0, block_id) == block_id).all()
        assert any(raw.data_ptr() <= block.data_ptr() < raw.data_ptr() + raw.numel() for raw in cache.tensors)
    assert [len(raw) for raw in make_cache().tensors] == [5, 5]
