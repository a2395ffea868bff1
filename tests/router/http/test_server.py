from __future__ import annotations

import asyncio
import signal

import httpx
import pytest

from common.errors import ConfigError
from router.http import serve_http
from tests.support.scripted_generator import ScriptedGenerator


async def test_signal_handlers_are_left_alone(make_app):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with await serve_http(make_app(ScriptedGenerator()), "127.0.0.1", 0) as server:
        assert server.port > 0
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_port_in_use_is_named(make_app):
    async with await serve_http(make_app(ScriptedGenerator()), "127.0.0.1", 0) as server:
        with pytest.raises(ConfigError, match=r"can't listen on 127\.0\.0\.1") as refused:
            await serve_http(make_app(ScriptedGenerator()), "127.0.0.1", server.port)
    assert refused.value.field == "http_port"


async def test_stopping_cuts_off_what_does_not_end(make_app):
    generator = ScriptedGenerator(["x"] * 10_000, pause_s=0.01)
    server = await serve_http(make_app(generator), "127.0.0.1", 0, grace_s=1)
    async with httpx.AsyncClient() as client:
        asking = asyncio.create_task(
            client.post(f"http://127.0.0.1:{server.port}/v1/completions", json={"prompt": "x"})
        )
        await generator.until(num_running=1)
        await server.stop()
        await server.stop()
        await generator.until(num_running=0, num_closed=1)
        result = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(result[0], httpx.HTTPError) or result[0].status_code >= 500
