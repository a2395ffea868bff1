"""What has come of one answer: enough to go on with it at another router."""

from __future__ import annotations

from dataclasses import dataclass, field

from common.errors import UnavailableError
from protos import inference_pb2


class BrokenAnswerError(UnavailableError):
    """A router sent other tokens than were due. Another one may do better."""


@dataclass(slots=True)
class _Received:
    token_ids: list[int] = field(default_factory=list)
    num_text_chars: int = 0
    finish_reason: int = 0  # on the wire


class AnswerProgress:
    """Owned by the call that receives the answer."""

    def __init__(self) -> None:
        self._start: inference_pb2.AnswerStart | None = None
        self._request_id = ""
        self._choices: dict[int, _Received] = {}

    @property
    def begun(self) -> bool:
        """Whether something has come that must not come again."""
        return bool(self._choices)

    def take(self, response: inference_pb2.GenerateResponse) -> bool:
        """Notes a response; False for one that only says that the router lives.

        Raises BrokenAnswerError when a choice's tokens would be repeated, or some be missing.
        """
        self._check(response)
        self._request_id = response.request_id
        if response.HasField("start"):
            self._start = response.start
        for piece in response.choices:
            choice = self._choices.setdefault(piece.index, _Received())
            choice.token_ids.extend(piece.token_ids)
            choice.num_text_chars += len(piece.text)
            choice.finish_reason = piece.finish_reason
        return bool(response.choices) or response.HasField("usage")

    @property
    def can_go_on(self) -> bool:
        """Whether another router can take it over: this one said with what seed it began."""
        return self._start is not None

    def go_on(self, request: inference_pb2.GenerateRequest) -> inference_pb2.GenerateRequest:
        """A request that goes on with the answer from here."""
        assert self._start is not None
        resumed = inference_pb2.GenerateRequest()
        resumed.CopyFrom(request)
        resumed.request_id = self._request_id
        resumed.sampling.seed = self._start.seed
        resumed.resume_from.prompt_digest = self._start.prompt_digest
        resumed.resume_from.choices.extend(
            inference_pb2.ResumedChoice(
                index=index,
                token_ids=choice.token_ids,
                num_text_chars=choice.num_text_chars,
                finish_reason=choice.finish_reason,  # type: ignore[arg-type]
            )
            for index, choice in sorted(self._choices.items())
        )
        resumed.ClearField("ttft_slo_ms")  # the first token is there
        return resumed

    def _check(self, response: inference_pb2.GenerateResponse) -> None:
        for piece in response.choices:
            choice = self._choices.get(piece.index, _Received())
            if piece.token_ids and piece.first_index != len(choice.token_ids):
                raise BrokenAnswerError(
                    f"choice {piece.index}: token {piece.first_index} came where {len(choice.token_ids)} was due"
                )
            if choice.finish_reason:
                raise BrokenAnswerError(f"choice {piece.index} went on after its end")
