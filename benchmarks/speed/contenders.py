"""Who can take part, by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.speed.contender import Contender
from benchmarks.speed.engine_process import EngineProcess, EngineSpec
from benchmarks.speed.peer_environments import OPENVINO
from benchmarks.speed.served.llama_cpp_server import LLAMA_CPP_SERVER
from benchmarks.speed.served.peer_server import PeerServer
from benchmarks.speed.served.slipstream_server import SlipstreamServer, cluster_config
from benchmarks.speed.served.vllm_server import VLLM_SERVER
from common.config import DType

IN_PROCESS, BOTH, SPLIT = "ours", "ours-both", "ours-split"
TRANSFORMERS, OPENVINO_NAME = "transformers", "openvino"
VLLM_NAME, LLAMA_CPP_NAME = VLLM_SERVER.name, LLAMA_CPP_SERVER.name
OURS = (IN_PROCESS, BOTH, SPLIT)
PEERS = (TRANSFORMERS, OPENVINO_NAME, VLLM_NAME, LLAMA_CPP_NAME)


def make_contender(
    name: str,
    model: Path,
    *,
    runner: asyncio.Runner,
    num_threads: int,
    make_timeout_s: float,
    dtype: DType = DType.BFLOAT16,
) -> Contender:
    """`dtype` is of ours; peers compute in bf16. Servers are called on the loop of `runner`."""
    if name in (BOTH, SPLIT):
        return SlipstreamServer(name, cluster_config(model, both=name == BOTH, dtype=dtype), runner)
    for server in (VLLM_SERVER, LLAMA_CPP_SERVER):
        if name == server.name:
            return PeerServer(server, model, make_timeout_s, runner)
    return EngineProcess(_engine_spec(name, dtype), model, num_threads, make_timeout_s)


def _engine_spec(name: str, dtype: DType) -> EngineSpec:
    if name == IN_PROCESS:
        return EngineSpec(name=name, module="slipstream", is_ours=True, variables={"SPEED_DTYPE": dtype.value})
    if name == TRANSFORMERS:
        return EngineSpec(name=name, module="transformers", has_prefix_cache=False, takes_arrivals=False)
    assert name == OPENVINO_NAME, f"unknown contender {name}"
    return EngineSpec(name=name, module="openvino", environment=OPENVINO)
