"""The commands of a newcomer, as processes: answers, exit codes, and nothing left running."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

START_TIMEOUT_S = 90.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "slipstream", *arguments]


def engine_flags(model: Path) -> list[str]:
    return ["--model", str(model), "--kv-memory", "16MiB", "--dtype", "float32"]


def test_generate_local_answers_and_stops(tiny_model: Path) -> None:
    done = subprocess.run(
        command("generate", "--local", *engine_flags(tiny_model), "--max-tokens", "8", "The harbour master"),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.fixture
def up(tiny_model: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`slipstream up` in a session of its own, as a terminal starts it; and where it prints to."""
    output = tmp_path / "up.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command("up", *engine_flags(tiny_model), "--http-port", "0", "--grpc-port", "0"),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process, output
    finally:
        process.kill()
        process.wait()


def processes_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def wait_until_ready(process: subprocess.Popen[bytes], output: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while "ready" not in output.read_text(errors="replace").lower() or len(processes_of(process)) < 4:
        assert process.poll() is None, output.read_text(errors="replace")
        assert time.monotonic() < deadline_s, output.read_text(errors="replace")
        time.sleep(0.1)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_up_leaves_no_process_behind(up: tuple[subprocess.Popen[bytes], Path], signum: signal.Signals) -> None:
    process, output = up
    wait_until_ready(process, output)
    started = processes_of(process)
    assert len(started) >= 4  # prefill, decode, router, index
    process.send_signal(signum)
    code = process.wait(timeout=30)
    assert code == {signal.SIGINT: 0, signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}[signum]
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == [], output.read_text(errors="replace")


def test_status_without_a_router_fails_with_its_address() -> None:
    done = subprocess.run(
        command("status", "--target", "127.0.0.1:9"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr
