"""The table of the fleet."""

from __future__ import annotations

import json

import pytest

from protos import admin_pb2, layout_pb2, worker_pb2
from slipstream.codec import decode_status
from slipstream.commands.status import _print


@pytest.mark.parametrize("as_json", [False, True])
def test_refused_workers_are_shown_with_their_reason(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    reason = "worker d1 has block_size 32, but worker d0 of the fleet has 16: start all [the] same"
    refused = admin_pb2.RefusedWorker(worker_id="d1", address="10.0.0.1:1", reason=reason)
    _print(decode_status(admin_pb2.StatusResponse(refused_workers=[refused])), as_json)
    printed = capsys.readouterr().out
    if as_json:
        told = {"worker_id": "d1", "address": "10.0.0.1:1", "reason": reason}
        assert json.loads(printed)["refused_workers"] == [told]
    else:
        row = next(line for line in printed.splitlines() if "10.0.0.1:1" in line)
        assert row.split()[:3] == ["d1", "-", "refused"]
        assert f"refused: {reason}" in printed


@pytest.mark.parametrize(
    ("state", "reachable", "shown"),
    [
        (layout_pb2.WORKER_STATE_READY, True, "ready"),
        (layout_pb2.WORKER_STATE_READY, False, "unreachable"),
        (layout_pb2.WORKER_STATE_DRAINING, True, "draining"),
        (layout_pb2.WORKER_STATE_NOT_READY, True, "not ready"),
        (layout_pb2.WORKER_STATE_REMOVED, False, "removed"),
        (layout_pb2.WORKER_STATE_DEAD, False, "dead"),
    ],
)
def test_what_a_worker_is_to_its_router_is_told_apart(
    state: layout_pb2.WorkerState, reachable: bool, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load = worker_pb2.LoadReport(num_swapped=11)
    worker = admin_pb2.WorkerStatus(
        worker_id="d1", role=layout_pb2.ROLE_DECODE, state=state, reachable=reachable, load=load
    )
    _print(decode_status(admin_pb2.StatusResponse(workers=[worker])), as_json=False)
    row = next(line for line in capsys.readouterr().out.splitlines() if "d1" in line)
    assert f" {shown} " in row
    assert " 11 " in row
