"""The receiving process as the sending one sees it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from benchmarks.pinning import pin
from protos import transfer_pb2


class SinkChild:
    """Started with the block count and the settings of each way to receive."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @staticmethod
    async def start(num_blocks: int, sinks: dict[str, Any]) -> tuple[SinkChild, int]:
        """The child, and the port of its plain socket."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.transfer.sink_process",
            str(num_blocks),
            json.dumps(sinks),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        child = SinkChild(process)
        return child, int((await child._answer())["port"])

    async def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ask": what, **arguments}).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._answer()

    @staticmethod
    def decode_target(encoded: str) -> transfer_pb2.PushTarget:
        return transfer_pb2.PushTarget.FromString(bytes.fromhex(encoded))

    def pin(self, cores: list[int]) -> None:
        pin(self._process.pid, cores)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the receiving process ended with {await self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
