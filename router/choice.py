"""One choice of an answer: its tokens so far, and the part of them that no one has read yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from common.errors import InvalidRequestError
from common.request import FinishReason, TokenLogprob
from router.generation import ChoiceDelta, ResumedChoice
from router.inbox import TokensArrived
from router.text import TextStream
from router.whereabouts import QUEUED, Whereabouts


@dataclass(slots=True, kw_only=True)
class Choice:
    """Owned by its answer. `skip_chars` code points of the text to come are with the caller already."""

    index: int
    text_stream: TextStream
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    stop_string: str | None = None
    unread_token_ids: list[int] = field(default_factory=list)
    unread_logprobs: list[TokenLogprob] = field(default_factory=list)
    unread_text: list[str] = field(default_factory=list)
    skip_chars: int = 0
    has_unread: bool = False
    whereabouts: Whereabouts = QUEUED

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def add(self, message: TokensArrived, num_seen: int) -> None:
        """Takes a message's tokens but for the first `num_seen`, which are here already."""
        token_ids = message.token_ids[num_seen:]
        logprobs = message.logprobs[num_seen:]
        stop_token_id = message.stop_token_id
        delta = self.text_stream.push(
            token_ids, finished=message.finish_reason is not None, stop_token=stop_token_id is not None
        )
        if delta.stop_string is not None:
            token_ids, logprobs = token_ids[: delta.num_tokens], logprobs[: delta.num_tokens]
            self.finish_reason, self.stop_string = FinishReason.STOP, delta.stop_string
        elif message.finish_reason is not None:
            self.finish_reason, self.stop_token_id = message.finish_reason, stop_token_id
        self.token_ids += token_ids
        self.unread_token_ids += token_ids
        self.unread_logprobs += logprobs
        self._add_text(delta.text)
        self.has_unread = self.has_unread or bool(token_ids) or self.finished

    def resume(self, received: ResumedChoice, max_tokens: int) -> None:
        """Goes on behind what the caller has received. Takes 5 to 10 µs a token.

        Raises InvalidRequestError when a stop string had ended the choice before its last token.
        """
        self.token_ids = list(received.token_ids)
        if received.finish_reason is not None:
            self.finish_reason = received.finish_reason
            return
        self.skip_chars = received.num_text_chars
        ended = len(received.token_ids) >= max_tokens
        delta = self.text_stream.push(received.token_ids, finished=ended)
        if delta.num_tokens < len(received.token_ids):
            raise InvalidRequestError(
                f"resume_from.choices[{self.index}].token_ids",
                f"go on after token {delta.num_tokens - 1}, where stop string {delta.stop_string!r} ended the choice",
            )
        if delta.stop_string is not None:
            self.finish_reason, self.stop_string = FinishReason.STOP, delta.stop_string
        elif ended:
            self.finish_reason = FinishReason.LENGTH
        self._add_text(delta.text)
        self.has_unread = self.finished or any(self.unread_text)

    def take(self) -> ChoiceDelta:
        """All that is new."""
        delta = ChoiceDelta(
            index=self.index,
            first_index=len(self.token_ids) - len(self.unread_token_ids),
            token_ids=tuple(self.unread_token_ids),
            text="".join(self.unread_text),
            logprobs=tuple(self.unread_logprobs),
            finish_reason=self.finish_reason,
            stop_token_id=self.stop_token_id,
            stop_string=self.stop_string,
        )
        self.unread_token_ids, self.unread_logprobs, self.unread_text = [], [], []
        self.has_unread = False
        return delta

    def _add_text(self, text: str) -> None:
        num_skipped = min(self.skip_chars, len(text))
        self.skip_chars -= num_skipped
        self.unread_text.append(text[num_skipped:])
