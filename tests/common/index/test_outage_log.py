from __future__ import annotations

import asyncio
import logging

import pytest

from common.index.client import IndexClient
from common.index.membership import Membership
from common.index.outage_log import OutageLog
from common.index.points import IndexSpace
from tests.support.valkey import fast_publisher, worker_ref

NOWHERE = "redis://127.0.0.1:1"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock, caplog: pytest.LogCaptureFixture) -> OutageLog:
    caplog.set_level(logging.INFO)
    return OutageLog(logging.getLogger("test"), "the server", clock=clock)


def test_an_outage_is_told_when_it_begins_every_30_s_and_when_it_ends(
    log: OutageLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(61):
        clock.now_s = second
        log.failed("refused")
    log.succeeded()
    log.succeeded()
    assert caplog.messages == [
        "the server: refused; going on without it and trying again",
        "the server: refused (for 30 s now); going on without it and trying again",
        "the server: refused (for 60 s now); going on without it and trying again",
        "the server answers again",
    ]


def test_what_comes_and_goes_is_told_no_more_often(
    log: OutageLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for tenth in range(400):
        clock.now_s = tenth / 10
        log.failed("refused")
        log.succeeded()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 2


def test_it_is_over_when_every_part_works(log: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    log.failed("refused", 1)
    log.failed("refused", 2)
    log.succeeded(1)
    log.succeeded(3)
    assert log
    log.succeeded(2)
    assert not log
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("url", [NOWHERE, "redis+cluster://127.0.0.1:1"])
async def test_a_worker_without_its_server_writes_one_line(
    space: IndexSpace, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    client = IndexClient.from_url(url)
    publisher = fast_publisher(client, space, worker_ref("a"))
    publisher.start()
    lease = Membership(client, space).register(worker_ref("a"), b"", 1.0)
    await asyncio.sleep(1.2)  # three tries of the lease, many of the publisher
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    await lease.release()
    await publisher.stop()
    await client.close()
    if url == NOWHERE:  # the nodes of a cluster fail apart, but none was ever reached
        assert "::" not in told[0]
    assert told == [f"index server {url}: connection refused; going on without it and trying again"]
