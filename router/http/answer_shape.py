"""What the two APIs' answers have in common, and the pieces that both are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from common.request import TokenLogprob
from router.generation import ChoiceDelta, GenerateCommand, GenerateEvent, Usage
from router.http.collected_answer import CollectedAnswer, CollectedChoice
from router.http.sampling_fields import Streaming
from router.text.text_model import TextModel

Json = dict[str, Any]

# JSON has no infinity; a token that can't be drawn has this log probability, as in vLLM's server.
LOWEST_LOGPROB = -9999.0


class AnswerShape(Protocol):
    """One request's answer in one API's JSON. Stateful: it knows what was streamed before."""

    @property
    def id(self) -> str: ...

    @property
    def streaming(self) -> Streaming: ...

    def commands(self) -> Sequence[GenerateCommand]:
        """What must be generated, one command per prompt."""
        ...

    def whole(self, answers: Sequence[CollectedAnswer]) -> Json:
        """The answer in one object; `answers` in the order of the commands."""
        ...

    def chunks(self, prompt_index: int, event: GenerateEvent) -> list[Json]:
        """What one event adds to a streamed answer."""
        ...

    def usage_chunk(self, usage: Usage) -> Json:
        """The last chunk, for `include_usage`."""
        ...


def usage_json(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def stop_reason(choice: ChoiceDelta | CollectedChoice, stop_token_ids: Sequence[int]) -> int | str | None:
    """The stop string or stop token that the caller named and that ended the choice; None for EOS, as in vLLM."""
    if choice.stop_string is not None:
        return choice.stop_string
    return choice.stop_token_id if choice.stop_token_id in stop_token_ids else None


def has_news(delta: ChoiceDelta, *, every_token: bool) -> bool:
    """Whether a delta is worth a chunk: tokens whose text is still held back are not, unless they are told too."""
    return bool(delta.text) or delta.finish_reason is not None or (every_token and bool(delta.token_ids))


def prompt_logprobs_json(text: TextModel, logprobs: Sequence[TokenLogprob]) -> list[Json | None]:
    """vLLM's form: one object per prompt token, keyed by token id; the first token has none."""
    return [None, *(_candidates(text, token) for token in logprobs)]


def finite(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)


def _candidates(text: TextModel, token: TokenLogprob) -> Json:
    ranked = [(token.token_id, token.logprob, token.rank)]
    ranked += [(top.token_id, top.logprob, rank) for rank, top in enumerate(token.top, start=1)]
    return {
        str(token_id): {"logprob": finite(logprob), "rank": rank, "decoded_token": text.token_text(token_id).text}
        for token_id, logprob, rank in ranked
    }
