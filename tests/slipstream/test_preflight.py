"""What is refused before any process is started."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.config import EngineConfig, IndexConfig, RouterConfig, WorkerConfig
from common.errors import ConfigError
from slipstream import cli
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster
from slipstream.ports import check_router_ports, check_worker_port

INDEX = IndexConfig(index_url="redis://127.0.0.1:1")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        yield other.getsockname()[1]


@pytest.fixture(autouse=True)
def nothing_is_started() -> Iterator[None]:
    before = psutil.Process().children()
    yield
    assert psutil.Process().children() == before


def refusal(model: Path, **settings: Any) -> str:
    free = {"grpc_port": 0, "http_port": 0}
    with pytest.raises(ConfigError) as caught:
        Cluster(ClusterConfig(**{**free, "engine": EngineConfig(model=str(model)), **settings})).start()
    return str(caught.value)


@pytest.mark.parametrize("field", ["grpc_port", "http_port"])
def test_a_cluster_does_not_start_on_a_port_that_is_in_use(model: Path, taken_port: int, field: str) -> None:
    flag = "--" + field.replace("_", "-")
    expected = f"{field}: {taken_port} is in use on 127.0.0.1; choose another with {flag}, or 0 for any"
    assert refusal(model, **{field: taken_port}) == expected


def test_the_ports_of_all_routers_are_looked_at(model: Path, taken_port: int) -> None:
    assert f"http_port: {taken_port} is in use" in refusal(model, http_port=taken_port - 1, routers=2)


def test_a_host_that_is_not_this_machine_is_named(model: Path) -> None:
    assert refusal(model, host="192.0.2.1").startswith("host: can't listen on '192.0.2.1': ")


def test_an_index_server_that_does_not_answer_is_named_with_what_to_do(model: Path) -> None:
    message = refusal(model, index=INDEX)
    assert message.startswith("index_url: no index server answers at redis://127.0.0.1:1: connection refused")
    assert "--index-url" in message


def test_a_model_that_is_not_built_is_refused_by_name(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"]}))
    message = refusal(model)
    assert message.startswith("model: architecture GPT2LMHeadModel is not supported; supported are: Llama")


def test_a_config_without_a_field_is_refused_by_name(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    assert "config.json has no num_attention_heads" in refusal(model)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"model: the folder {tmp_path} has no config.json"


def test_services_look_at_their_ports(taken_port: int) -> None:
    with pytest.raises(ConfigError, match=f"^port: {taken_port} is in use on 127.0.0.1; .* --port, or 0"):
        check_worker_port(WorkerConfig(port=taken_port))
    with pytest.raises(ConfigError, match=f"^http_port: {taken_port} is in use"):
        check_router_ports(RouterConfig(index=INDEX, grpc_port=0, http_port=taken_port))


@pytest.mark.parametrize("command", ["router", "decode", "up"])
def test_a_port_in_use_is_one_line(command: str, taken_port: int, capfd: pytest.CaptureFixture[str]) -> None:
    flag = "--port" if command == "decode" else "--grpc-port"
    more = ["--worker", "a:1", "--http-port", "0"] if command == "router" else []
    assert cli.run([command, flag, str(taken_port), *more]) == 2
    shown = capfd.readouterr().err
    assert shown.startswith("error: ") and shown.count("\n") == 1
    assert f"{taken_port} is in use on 127.0.0.1; choose another with {flag}, or 0 for any" in shown
