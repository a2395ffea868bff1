"""The death of a vital task is told; its cancelling is not."""

from __future__ import annotations

import asyncio

from common.vital_tasks import VitalTasks


async def test_death_is_told_and_cancelling_is_not() -> None:
    deaths: list[BaseException] = []

    async def die() -> None:
        raise KeyError("bug")

    tasks = VitalTasks(deaths.append)
    tasks.start(asyncio.sleep(60), "lives")
    tasks.start(die(), "dies")
    await asyncio.sleep(0.01)
    tasks.cancel()
    await asyncio.sleep(0.01)
    assert [type(error) for error in deaths] == [KeyError]
