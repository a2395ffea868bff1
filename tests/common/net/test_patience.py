"""A limit on many short waits."""

from __future__ import annotations

import asyncio

import pytest

from common.net.patience import Patience

LIMIT_S = 0.05


async def test_short_waits_pass_though_together_they_take_longer() -> None:
    patience = Patience(LIMIT_S)
    for _ in range(10):
        with patience:
            await asyncio.sleep(LIMIT_S / 4)
    patience.close()


async def test_a_wait_that_takes_too_long_is_ended() -> None:
    patience = Patience(LIMIT_S)
    with patience:
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), patience:
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    with patience:
        await asyncio.sleep(0)
    patience.close()


async def test_time_between_waits_does_not_count() -> None:
    patience = Patience(LIMIT_S)
    for _ in range(2):
        with patience:
            await asyncio.sleep(0)
        await asyncio.sleep(2 * LIMIT_S)
    patience.close()


async def test_without_a_limit_a_wait_may_take_any_time() -> None:
    patience = Patience(None)
    with patience:
        await asyncio.sleep(2 * LIMIT_S)
    patience.close()


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def wait() -> None:
        patience = Patience(60.0)
        try:
            with patience:
                await asyncio.Event().wait()
        finally:
            patience.close()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
