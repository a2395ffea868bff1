"""One answer, at as many routers as it takes: where the next call goes, what it asks, and when to give up.

Opens nothing and waits for nothing: both clients do, as this tells them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from common.errors import DeadlineExceededError, OverloadedError, SlipstreamError, UnavailableError
from protos import inference_pb2
from slipstream import codec
from slipstream.answer_progress import AnswerProgress
from slipstream.connection import DEADLINE_GRACE_S, none_answers
from slipstream.generation import GenerationDelta
from slipstream.targets import Targets

# Between rounds over all routers, for an answer that has begun; twice as long after each round.
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One call: the index of its address, what it asks, and the seconds that it may take."""

    index: int
    request: inference_pb2.GenerateRequest
    timeout_s: float


class Pursuit:
    """Owned by the call that receives the answer.

    Before the first token, each router is asked once. Afterwards the answer goes on at another router, or at the
    same one when it is back, from the token where it broke off; when for `resume_s` seconds none has brought a
    token, it fails.
    """

    def __init__(
        self,
        targets: Targets,
        request: inference_pb2.GenerateRequest,
        *,
        timeout_s: float,
        resume_s: float,
        heartbeat_s: float,
    ) -> None:
        self._targets = targets
        self._request = request
        self._request.heartbeat_ms = round(heartbeat_s * 1000)
        self._deadline_ms = request.deadline_ms if request.HasField("deadline_ms") else None
        self._begun_s = time.monotonic()
        self._lost_s: float | None = None  # monotonic: the first failure since the last token
        self._timeout_s = timeout_s
        self._resume_s = resume_s
        self._progress = AnswerProgress()
        self._refusals: list[SlipstreamError] = []
        self._tried: set[int] = set()
        self._silent: set[int] = set()  # they may be asked again over another connection, if nobody else answers
        self._num_rounds = self._num_resumes = self._num_calls = 0
        self._resuming = False
        self._index: int | None = None

    def begin(self) -> Attempt:
        """The next call; `end` must follow it. Raises DeadlineExceededError when there is no time left."""
        elapsed_s = time.monotonic() - self._begun_s
        left_s = self._timeout_s - elapsed_s
        request = self._request
        if self._progress.begun:
            request = self._progress.go_on(request)
            self._resuming = True
        if self._deadline_ms is not None:
            deadline_s = self._deadline_ms / 1000 - elapsed_s
            if self._num_calls and deadline_s <= 0:
                raise DeadlineExceededError(f"deadline_ms: {self._deadline_ms} ms have passed")
            request.deadline_ms = max(0, round(deadline_s * 1000))
            # The router ends a request at its deadline with what there is to say; the call's own is a little later.
            left_s = min(left_s, deadline_s + DEADLINE_GRACE_S)
        if self._num_calls and left_s <= 0:
            raise DeadlineExceededError(f"the answer took more than the {self._timeout_s:g} s of the client's timeout")
        self._num_calls += 1
        self._index = self._targets.begin(self._tried, self._silent)
        return Attempt(index=self._index, request=request, timeout_s=left_s)

    def end(self) -> None:
        """The call is over, however it went."""
        assert self._index is not None
        self._targets.end(self._index)
        self._index = None

    def take(self, response: inference_pb2.GenerateResponse) -> GenerationDelta | None:
        """What a response brings to the caller; None when it only says that the router lives.

        Raises BrokenAnswerError.
        """
        assert self._index is not None
        has_news = self._progress.take(response)
        self._targets.note_answer(self._index)
        if not has_news:
            return None
        self._num_resumes += self._resuming
        self._resuming = False
        self._lost_s = None
        self._tried.clear()
        self._silent.clear()
        self._refusals.clear()
        self._num_rounds = 0
        return codec.decode_response(response, self._num_resumes)

    def note_failure(self, error: SlipstreamError, *, by_connection: bool = False) -> float:
        """The call failed: the seconds until the next one. Raises what the answer ends in when there is none.

        `by_connection`: it may be the connection's fault, so that the same router may be asked over another one.
        """
        assert self._index is not None
        unavailable = isinstance(error, UnavailableError)
        if unavailable:
            self._targets.note_failure(self._index)
        if not self._progress.begun:
            if not unavailable:
                raise error from None
            self._note_refusal(error, by_connection)
            if len(self._tried) == len(self._targets):
                raise none_answers(self._refusals) from None
            return 0.0
        if not self._progress.can_go_on or not (unavailable or isinstance(error, OverloadedError)):
            raise error from None
        self._note_refusal(error, by_connection)
        return self._pause_s(error)

    def _note_refusal(self, error: SlipstreamError, by_connection: bool) -> None:
        assert self._index is not None
        (self._silent if by_connection else self._tried).add(self._index)
        self._refusals.append(error)

    def _pause_s(self, error: SlipstreamError) -> float:
        now_s = time.monotonic()
        if self._lost_s is None:
            self._lost_s = now_s
        if len(self._tried) < len(self._targets):
            return 0.0
        pause_s = min(FIRST_PAUSE_S * 2.0**self._num_rounds, MAX_PAUSE_S)
        if isinstance(error, OverloadedError):
            pause_s = max(pause_s, error.retry_after_s)
        if now_s + pause_s > self._lost_s + self._resume_s:
            raise none_answers(self._refusals[-len(self._targets) :]) from None
        self._num_rounds += 1
        self._tried.clear()
        return pause_s
