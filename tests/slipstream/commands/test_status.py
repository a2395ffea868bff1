"""The table of the fleet."""

from __future__ import annotations

import json

import pytest

from protos import admin_pb2
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
