from __future__ import annotations

from typing import Any

import pytest

from common.config import EngineConfig, Role
from common.errors import ConfigError
from slipstream.child import ChildCommand
from slipstream.cluster_config import ClusterConfig
from slipstream.cluster_plan import ClusterPlan

INDEX_URL = "redis://127.0.0.1:7"


def plan(environment: dict[str, str] | None = None, **settings: Any) -> dict[str, ChildCommand]:
    commands = ClusterPlan(ClusterConfig(**settings), INDEX_URL, [0, 1, 2, 3]).commands(["program"], environment or {})
    return {command.name: command for command in commands}


def flag(command: ChildCommand, name: str) -> str:
    arguments = list(command.arguments)
    return arguments[arguments.index(name) + 1]


def test_the_processes_and_their_names() -> None:
    assert list(plan(prefill=2, decode=1, routers=2)) == ["prefill-0", "prefill-1", "decode-0", "router-0", "router-1"]


def test_role_both_has_no_prefill_workers() -> None:
    commands = plan(role=Role.BOTH, decode=2)
    assert list(commands) == ["both-0", "both-1", "router-0"]
    assert commands["both-0"].arguments[:2] == ("program", "decode")
    assert flag(commands["both-0"], "--role") == "both"


def test_every_process_knows_the_index_and_its_name() -> None:
    commands = plan()
    assert {command.environment["SLIPSTREAM_INDEX_URL"] for command in commands.values()} == {INDEX_URL}
    assert not any(INDEX_URL in argument for command in commands.values() for argument in command.arguments)
    assert flag(commands["prefill-0"], "--worker-id") == "prefill-0"
    assert flag(commands["router-0"], "--router-id") == "router-0"


def test_engine_flags_go_to_the_workers_and_the_model_to_all() -> None:
    commands = plan(engine=EngineConfig(model="/m", max_num_seqs=3, kv_memory_share=0.4))
    assert {flag(command, "--model") for command in commands.values()} == {"/m"}
    assert flag(commands["decode-0"], "--max-num-seqs") == "3"
    assert float(flag(commands["decode-0"], "--kv-memory-share")) == pytest.approx(0.2)


def test_workers_of_a_role_may_have_an_engine_of_their_own() -> None:
    commands = plan(decode_engine=EngineConfig(max_num_seqs=3))
    assert flag(commands["decode-0"], "--max-num-seqs") == "3"
    assert "--max-num-seqs" not in commands["prefill-0"].arguments


def test_ports_count_up_and_zero_stays_zero() -> None:
    counted = plan(routers=2, grpc_port=6000, http_port=0)
    assert flag(counted["router-1"], "--grpc-port") == "6001"
    assert flag(counted["router-1"], "--http-port") == "0"


def test_cores_are_divided_and_threads_follow() -> None:
    commands = plan()
    assert commands["prefill-0"].cores == (0, 1)
    assert commands["decode-0"].cores == (2, 3)
    assert commands["router-0"].cores is None
    assert flag(commands["decode-0"], "--num-threads") == commands["decode-0"].environment["OMP_NUM_THREADS"] == "2"


def test_settings_of_the_environment_are_not_inherited_and_the_rest_is() -> None:
    environment = {"SLIPSTREAM_GRPC_PORT": "1", "SLIPSTREAM_CONFIG": "x", "HOME": "/h", "GOMP_SPINCOUNT": "5"}
    inherited = plan(environment)["decode-0"].environment
    assert "SLIPSTREAM_GRPC_PORT" not in inherited
    assert "SLIPSTREAM_CONFIG" not in inherited
    assert inherited["HOME"] == "/h"
    assert inherited["GOMP_SPINCOUNT"] == "5"
    assert plan()["decode-0"].environment["GOMP_SPINCOUNT"] == "10000"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"prefill": 0}, "prefill"),
        ({"decode": 0}, "decode"),
        ({"routers": 0}, "routers"),
        ({"role": Role.PREFILL}, "role"),
        ({"http_port": 65535, "routers": 2}, "http_port"),
        ({"grpc_port": 6000, "http_port": 6001, "routers": 2}, "http_port"),
        ({"policy": "fastest"}, "policy"),
        ({"engine": EngineConfig(block_size=128)}, "index_stride"),
        ({"start_timeout_s": 0}, "start_timeout_s"),
    ],
)
def test_what_can_not_be_started_is_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterConfig(**settings)
    assert caught.value.field == field
