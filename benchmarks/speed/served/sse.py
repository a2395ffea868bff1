"""The least of HTTP that reads a stream of server-sent events: what a client costs is taken from the server's cores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

MAX_LINE_BYTES = 2**20
PREFIX = b"data: "
LAST = b"data: [DONE]"


class HttpStatusError(Exception):
    """The server did not answer 200."""


async def post_events(host: str, port: int, path: str, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of the answer's events. Raises HttpStatusError."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(host, port, limit=MAX_LINE_BYTES)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await writer.drain()
        status = await reader.readline()
        if b" 200 " not in status:
            raise HttpStatusError(f"{path}: {(status + await reader.read(500)).decode(errors='replace')}")
        # Headers and sizes of chunks begin otherwise; an event is never split over lines.
        async for line in reader:
            if line.startswith(LAST):
                return
            if line.startswith(PREFIX):
                yield json.loads(line[len(PREFIX) :])
    finally:
        writer.close()
