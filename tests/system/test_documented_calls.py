"""The calls that README and docs/api.md show work as they stand, but for the addresses and the model's name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.launcher import Cluster

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0


def code_blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def addressed(code: str, cluster: Cluster) -> str:
    replaced = {
        "http://127.0.0.1:8000": cluster.http_urls[0],
        "127.0.0.1:50051": cluster.grpc_addresses[0],
        "SmolLM2-135M-Instruct": "tiny",
    }
    for shown, real in replaced.items():
        code = code.replace(shown, real)
    return code


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("document", "position"), [("README.md", 0), ("README.md", 1), ("docs/api.md", 0)], ids=["openai", "client", "api"]
)
def test_python_examples_run(document: str, position: int, small_cluster: Cluster) -> None:
    code = code_blocks(document, "python")[position]
    assert output_of([sys.executable, "-c", addressed(code, small_cluster)]).strip()


def test_no_python_example_is_left_out() -> None:
    assert len(code_blocks("README.md", "python")) == 2
    assert len(code_blocks("docs/api.md", "python")) == 1


def test_the_curl_example_streams_an_answer(small_cluster: Cluster) -> None:
    (command,) = (block for block in code_blocks("README.md", "") if block.startswith("curl"))
    streamed = output_of(["bash", "-c", addressed(command, small_cluster)])
    assert "chat.completion.chunk" in streamed
    assert streamed.rstrip().endswith("data: [DONE]")
