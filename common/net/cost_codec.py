"""Step times between their domain class and the wire."""

from __future__ import annotations

from common.cost import StepTimes
from protos import worker_pb2 as pb


def encode_step_times(times: StepTimes) -> pb.StepTimes:
    return pb.StepTimes(
        step_s=times.step_s,
        prefill_token_s=times.prefill_token_s,
        prefill_pair_s=times.prefill_pair_s,
        decode_request_s=times.decode_request_s,
        decode_kv_token_s=times.decode_kv_token_s,
        num_steps=times.num_steps,
    )


def decode_step_times(message: pb.StepTimes) -> StepTimes | None:
    """None when a peer sent what can't be times: planning then goes on without."""
    try:
        return StepTimes(
            step_s=message.step_s,
            prefill_token_s=message.prefill_token_s,
            prefill_pair_s=message.prefill_pair_s,
            decode_request_s=message.decode_request_s,
            decode_kv_token_s=message.decode_kv_token_s,
            num_steps=message.num_steps,
        )
    except ValueError:
        return None
