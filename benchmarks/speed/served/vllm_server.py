"""vLLM's OpenAI server on CPUs, as its package wants to be started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed.contender import ContenderError
from benchmarks.speed.peer_environment import PeerEnvironment
from benchmarks.speed.peer_environments import VLLM
from benchmarks.speed.request import Request
from benchmarks.speed.served.peer_server import HOST, ServerSpec

MODEL_NAME = "model"
# Debian's libtcmalloc-minimal4 or libgoogle-perftools4: without it vLLM is slower, and says so.
TCMALLOC_NAMES = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
OPTIONS = ("--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "64", "--enable-prefix-caching")


def command(environment: PeerEnvironment, model: Path, port: int) -> list[str]:
    python = str(environment.python)
    where = ["--host", HOST, "--port", str(port), "--served-model-name", MODEL_NAME, "--model", str(model)]
    return [python, "-m", "vllm.entrypoints.openai.api_server", *where, *OPTIONS]


def variables(environment: PeerEnvironment) -> Mapping[str, str]:
    return {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_NO_USAGE_STATS": "1",
        "LD_PRELOAD": f"{_tcmalloc()}:{environment.folder / 'lib' / 'libiomp5.so'}",
    }


def body(request: Request) -> Mapping[str, Any]:
    return {
        "model": MODEL_NAME,
        "prompt": request.text,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def count_tokens(event: Mapping[str, Any], num_so_far: int) -> int:
    usage = event.get("usage") or {}
    return int(usage.get("completion_tokens", num_so_far)) - num_so_far


def _tcmalloc() -> Path:
    paths = [Path(folder) / name for name in TCMALLOC_NAMES for folder in LIBRARY_FOLDERS]
    found = next((path for path in paths if path.exists()), None)
    if found is None:
        raise ContenderError("it wants tcmalloc: apt-get install libtcmalloc-minimal4")
    return found


VLLM_SERVER = ServerSpec(
    name="vllm-cpu",
    version=VLLM.packages[0].partition("==")[2],
    environment=VLLM,
    command=command,
    variables=variables,
    path="/v1/completions",
    body=body,
    count_tokens=count_tokens,
)
