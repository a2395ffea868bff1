"""The crossing between event loop and engine: what fails on either side is told, never swallowed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from common.engine.results import LegEndReason
from common.request import RequestId
from common.worker.engine_thread import EngineThread, StepReport
from tests.support.engine import HashEngine, make_leg

TIMEOUT_S = 10.0


async def start(
    on_report: Callable[[StepReport], None], on_crash: Callable[[BaseException], None]
) -> tuple[EngineThread, HashEngine]:
    host = HashEngine()
    thread = EngineThread(host.engine, on_report=on_report, on_crash=on_crash)
    thread.start()
    return thread, host


async def test_a_poisoned_request_is_told_as_failed_and_the_thread_goes_on() -> None:
    reports: list[StepReport] = []
    crashes: list[BaseException] = []
    thread, host = await start(reports.append, crashes.append)

    def explode(scheduled: object) -> None:
        if any(entry.sequence.leg.request_id == "poison" for entry in scheduled):  # type: ignore[attr-defined]
            raise RuntimeError("poison")

    host.runner.before_execute = explode
    await thread.call(lambda engine: engine.submit(make_leg(range(8), request_id="poison")))
    await thread.call(lambda engine: engine.submit(make_leg(range(8), request_id="fine")))
    async with asyncio.timeout(TIMEOUT_S):
        while sum(len(output.token_ids) for report in reports for output in report.result.tokens) < 8:
            await asyncio.sleep(0.01)
    await thread.stop()
    ends = [end for report in reports for end in report.result.ends]
    assert [(end.request_id, end.reason) for end in ends] == [("poison", LegEndReason.FAILED)]
    assert crashes == []


async def test_a_call_that_raises_tells_its_caller_alone() -> None:
    reports: list[StepReport] = []
    thread, _ = await start(reports.append, lambda error: None)

    def explode(engine: object) -> None:
        raise RuntimeError("no")

    failing, fine = thread.call(explode), thread.call(lambda engine: engine.max_model_len)
    with pytest.raises(RuntimeError, match="no"):
        await failing
    assert await fine > 0
    await thread.stop()


async def test_a_report_that_can_not_be_taken_in_ends_the_process_instead_of_half_the_requests() -> None:
    crashed = asyncio.get_running_loop().create_future()

    def explode(report: StepReport) -> None:
        raise RuntimeError("half delivered")

    thread, _ = await start(explode, crashed.set_result)
    await thread.call(lambda engine: engine.cancel(RequestId("nobody")))
    async with asyncio.timeout(TIMEOUT_S):
        assert str(await crashed) == "half delivered"
    await thread.stop()


async def test_a_call_does_not_wait_for_the_step_that_follows_it() -> None:
    thread, host = await start(lambda report: None, lambda error: None)
    may_step = threading.Event()
    host.runner.before_execute = lambda scheduled: may_step.wait(TIMEOUT_S)
    submitted = thread.call(lambda engine: engine.submit(make_leg(range(8))))
    async with asyncio.timeout(TIMEOUT_S / 2):
        await submitted
    may_step.set()
    await thread.stop()
