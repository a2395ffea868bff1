"""A valve passes what it may, in order, and loses nothing."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.chaos.valve import Valve

SOON_S = 0.05


async def taken(valve: Valve, data: bytes, *, is_empty_answer: bool = False) -> bytes | None:
    """What passes soon; None: nothing."""
    try:
        return await asyncio.wait_for(valve.take(data, is_empty_answer=is_empty_answer), SOON_S)
    except TimeoutError:
        return None


async def test_an_open_valve_passes_everything() -> None:
    assert await taken(Valve(), b"abc") == b"abc"


async def test_so_many_bytes_pass_and_no_more() -> None:
    valve = Valve()
    valve.let_bytes(2)
    assert await taken(valve, b"abc") == b"ab"
    assert await taken(valve, b"c") is None


async def test_an_empty_answer_stops_everything() -> None:
    valve = Valve()
    valve.stop_at_empty_answer()
    assert await taken(valve, b"a map") == b"a map"
    assert await taken(valve, b"all went well", is_empty_answer=True) is None
    assert await taken(valve, b"and more") is None
    valve.open()
    assert await taken(valve, b"all went well", is_empty_answer=True) == b"all went well"


async def test_what_was_cut_off_arrives_when_the_link_is_mended() -> None:
    valve = Valve()
    valve.cut()
    waiting = asyncio.create_task(valve.take(b"late"))
    await asyncio.sleep(SOON_S)
    assert not waiting.done()
    valve.open()
    assert await asyncio.wait_for(waiting, 1.0) == b"late"


async def test_a_throttled_valve_takes_its_time() -> None:
    valve = Valve()
    valve.throttle(1000.0)
    started_s = asyncio.get_running_loop().time()
    assert await valve.take(b"x" * 100) == b"x" * 100
    assert asyncio.get_running_loop().time() - started_s == pytest.approx(0.1, abs=0.05)
