"""However `slipstream up` ends, every process that it started ends too."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

START_TIMEOUT_S = 90.0
EXIT_CODES = {signal.SIGINT: 0, signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}


def wait_until_ready(process: subprocess.Popen[bytes], output: Path) -> list[psutil.Process]:
    """The processes that it has started once it says that it is ready."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while "Ready after" not in output.read_text(errors="replace"):
        assert process.poll() is None, output.read_text(errors="replace")
        assert time.monotonic() < deadline_s, output.read_text(errors="replace")
        time.sleep(0.1)
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("signum", EXIT_CODES)
def test_up_leaves_no_process_behind(tiny_model: Path, tmp_path: Path, signum: signal.Signals) -> None:
    output = tmp_path / "up.txt"
    flags = ["--model", str(tiny_model), "--kv-memory", "16MiB", "--http-port", "0", "--grpc-port", "0", "--no-prompt"]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "slipstream", "up", *flags], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        started = wait_until_ready(process, output)
        assert len(started) == 4  # index server, prefill worker, decode worker, router
        process.send_signal(signum)
        assert process.wait(timeout=30) == EXIT_CODES[signum]
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == [], output.read_text(errors="replace")
