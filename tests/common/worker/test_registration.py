"""What a worker says of itself, and of routers that don't use it."""

from __future__ import annotations

import logging

import pytest

from common.worker.registration import RegistrationServicer
from protos import worker_pb2


async def test_a_refusal_is_one_error_line_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    servicer = RegistrationServicer(worker_pb2.WorkerRegistration())
    with caplog.at_level(logging.ERROR):
        for router_id, reason in (("r1", "block_size"), ("r2", "block_size"), ("r1", "model"), ("r1", "model")):
            await servicer.Refuse(worker_pb2.RefuseRequest(router_id=router_id, reason=reason), None)
    assert [record.getMessage() for record in caplog.records] == [
        "router r1 gives this worker no work: block_size",
        "router r1 gives this worker no work: model",
    ]
