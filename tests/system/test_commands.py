"""The commands as a person types them, with real processes and the tiny model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil

SLIPSTREAM = [sys.executable, "-m", "slipstream"]
START_TIMEOUT_S = 120.0


def engine_flags(model: Path) -> list[str]:
    return ["--model", str(model), "--dtype", "float32", "--kv-memory", "16MiB"]


def test_up_serves_answers_and_stops_everything(tiny_model: Path) -> None:
    command = [*SLIPSTREAM, "up", *engine_flags(tiny_model), "--grpc-port=0", "--http-port=0", "--prompt", "Hello"]
    # As a script's `make up &` starts it: with SIGINT ignored.
    up = subprocess.Popen(
        ["bash", "-c", 'trap "" INT; exec "$@"', "bash", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert up.stdout is not None
    seen = []
    for line in up.stdout:
        seen.append(line)
        if "prompt tokens" in line:  # the summary of the first answer
            break
    family = psutil.Process(up.pid).children(recursive=True)
    up.send_signal(signal.SIGINT)
    seen += up.stdout.readlines()
    up.stdout.close()
    assert up.wait(START_TIMEOUT_S) == 0
    shown = "".join(seen)
    assert "Ready after" in shown
    assert "> Hello" in shown
    assert len(family) == 4  # index server, prefill worker, decode worker, router
    assert not any(process.is_running() for process in family)


def test_generate_local_answers_and_stops(tiny_model: Path) -> None:
    command = [*SLIPSTREAM, "generate", "--local", *engine_flags(tiny_model), "--max-tokens", "8", "--ignore-eos", "Hi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "8 generated" in done.stderr


def test_profile_measures_a_worker(tiny_model: Path, tmp_path: Path) -> None:
    output = tmp_path / "tiny.json"
    command = [*SLIPSTREAM, "profile", str(output), *engine_flags(tiny_model), "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    profile = json.loads(output.read_text())
    assert profile["kind"] == "linear"
    assert set(profile["linear"]) >= {"step_s", "prefill_token_s", "decode_kv_token_s"}
    assert profile["linear"]["step_s"] > 0
    assert profile["kv_capacity_tokens"] == 16 * 2**20 / profile["kv_bytes_per_token"]
