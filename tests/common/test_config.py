from __future__ import annotations

import pytest

from common.attention.native_attention import NativeAttention
from common.attention.torch_attention import TorchAttention
from common.config import ATTENTION_BACKENDS, POLICIES, IndexConfig, RouterConfig, WorkerConfig, parse_bytes
from common.errors import ConfigError
from router.policy import POLICY_NAMES

INDEX = IndexConfig(index_url="redis://a:1")


def test_the_choices_are_what_is_built() -> None:
    assert POLICIES == POLICY_NAMES
    assert ("auto", NativeAttention.name, TorchAttention.name) == ATTENTION_BACKENDS


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("7", 7), ("7B", 7), ("2kB", 2000), ("1.5 GiB", 3 * 2**29), ("1TB", 10**12), ("1tib", 2**40), ("512MiB", 2**29)],
)
def test_sizes_have_units(text: str, num_bytes: int) -> None:
    assert parse_bytes("kv_memory", text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "1PB", "-1GB", "1 G B", "lots", "nan", "inf"])
def test_what_is_no_size_is_refused_with_the_units(text: str) -> None:
    with pytest.raises(ConfigError, match="kB, MB, GB, TB, KiB, MiB, GiB or TiB"):
        parse_bytes("kv_memory", text)


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        parse_bytes("kv_memory", "0GB")


def test_a_router_without_a_way_to_find_workers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"index_url: must be given .*--worker"):
        RouterConfig()
    RouterConfig(worker=("a:1",))
    RouterConfig(index=INDEX)


def test_two_servers_of_a_router_need_two_ports() -> None:
    with pytest.raises(ConfigError, match="http_port: must differ from grpc_port"):
        RouterConfig(index=INDEX, grpc_port=8000)


@pytest.mark.parametrize("advertise", ["b", "b:0", "http://b:1"])
def test_what_a_worker_advertises_must_be_an_address(advertise: str) -> None:
    with pytest.raises(ConfigError, match="advertise: must be host:port"):
        WorkerConfig(advertise=advertise)


def test_a_worker_that_listens_on_all_addresses_must_say_which_one_others_use() -> None:
    with pytest.raises(ConfigError, match="advertise: must be given"):
        WorkerConfig(index=INDEX, host="0.0.0.0")
    WorkerConfig(index=INDEX, host="0.0.0.0", advertise="b:7001")
    WorkerConfig(host="0.0.0.0")  # found by the routers that list it
