"""llama.cpp's server, on a GGUF file of the same weights in bf16."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed.bfloat16_gguf import bfloat16_gguf
from benchmarks.speed.contender import ContenderError
from benchmarks.speed.peer_environment import PeerEnvironment
from benchmarks.speed.peer_environments import LLAMA_CPP
from benchmarks.speed.request import Request
from benchmarks.speed.served.peer_server import HOST, ServerSpec

NUM_SLOTS = 32
# What all slots share: enough for 32 at context 2,000, the longest workload.
CONTEXT_TOKENS = NUM_SLOTS * 2112
OPTIONS = ("-b", "2048", "-ub", "512", "-t", "2", "--no-webui")


def command(environment: PeerEnvironment, model: Path, port: int) -> list[str]:
    program = next((path for path in environment.folder.rglob("llama-server") if path.is_file()), None)
    if program is None:
        raise ContenderError(f"no llama-server in {environment.folder}")
    _link_libraries(program.parent)
    where = ["--host", HOST, "--port", str(port), "-m", str(bfloat16_gguf())]
    return [str(program), *where, "-np", str(NUM_SLOTS), "-c", str(CONTEXT_TOKENS), *OPTIONS]


def _link_libraries(folder: Path) -> None:
    """The package lists the links between its libraries, which a wheel can't hold, and makes none."""
    listed = folder / "_symlinks.json"
    if not listed.is_file():
        return
    for name, target in json.loads(listed.read_text(encoding="utf-8")).items():
        if not (folder / name).exists():
            (folder / name).symlink_to(target)


def body(request: Request) -> Mapping[str, Any]:
    return {
        "prompt": request.text,
        "n_predict": request.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_tokens": True,
    }


def count_tokens(event: Mapping[str, Any], num_so_far: int) -> int:
    return 0 if event.get("stop") else len(event.get("tokens", ()))


LLAMA_CPP_SERVER = ServerSpec(
    name="llama.cpp",
    version=LLAMA_CPP.packages[0].partition("==")[2],
    environment=LLAMA_CPP,
    command=command,
    path="/completion",
    body=body,
    count_tokens=count_tokens,
)
