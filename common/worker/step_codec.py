"""Step results and load between the engine and the wire."""

from __future__ import annotations

import dataclasses

from common.engine.results import LegEnded, LegEndReason, Load, TokenOutput
from common.net.cost_codec import encode_step_times
from common.net.sampling_codec import encode_finish_reason, encode_logprobs
from common.transport.transfer_counters import TransferCounters
from protos import worker_pb2 as pb

MAX_MESSAGE_LENGTH = 1000
_END_REASONS = {
    LegEndReason.PREEMPTED: pb.LEG_END_REASON_PREEMPTED,
    LegEndReason.FAILED: pb.LEG_END_REASON_FAILED,
    LegEndReason.CANCELLED: pb.LEG_END_REASON_CANCELLED,
    LegEndReason.DEADLINE: pb.LEG_END_REASON_FAILED,
}


def encode_output(output: TokenOutput) -> pb.ChoiceOutput:
    message = pb.ChoiceOutput(
        request_id=output.request_id,
        attempt=output.attempt,
        choice_index=output.choice_index,
        first_index=output.first_index,
        token_ids=output.token_ids,
        finish_reason=encode_finish_reason(output.finish_reason),
        stop_token_id=output.stop_token_id,
    )
    if output.logprobs:
        message.logprobs.extend(encode_logprobs(output.logprobs))
    if output.start is not None:
        start = output.start
        message.start.CopyFrom(
            pb.LegStart(
                cached_tokens=start.cached_tokens,
                queue_ms=start.queue_s * 1000,
                prefill_ms=start.prefill_s * 1000,
                prompt_logprobs=encode_logprobs(start.prompt_logprobs),
            )
        )
    return message


def encode_end(end: LegEnded) -> pb.LegEnd:
    return pb.LegEnd(
        request_id=end.request_id,
        attempt=end.attempt,
        choice_indices=end.choice_indices,
        reason=_END_REASONS[end.reason],
        status="" if end.status is None else end.status.value,
        message=_readable(end.message),
    )


def _readable(message: str) -> str:
    """The text of any error: some quote what UTF-8 can't say, or whole tensors."""
    return message[:MAX_MESSAGE_LENGTH].encode(errors="replace").decode()


def encode_load(load: Load, counters: TransferCounters) -> pb.LoadReport:
    # The fields of Load are those of LoadReport, by name.
    fields = {field.name: getattr(load, field.name) for field in dataclasses.fields(load)}
    fields["step_times"] = encode_step_times(load.step_times)
    return pb.LoadReport(
        **fields,
        sent_bytes=counters.sent_bytes,
        sent_blocks=counters.sent_blocks,
        received_bytes=counters.received_bytes,
        received_blocks=counters.received_blocks,
        sent_bytes_by_transport=counters.sent_bytes_by_transport,
        transport_fallbacks=counters.fallbacks,
    )
