"""The answer to `POST /v1/completions`, whole or in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.request import TokenLogprob
from router.generation import ChoiceDelta, GenerateCommand, GenerateEvent, Usage
from router.http.answer_shape import Json, finite, has_news, prompt_logprobs_json, stop_reason, usage_json
from router.http.collected_answer import CollectedAnswer, CollectedChoice, total_usage
from router.http.completion_request import CompletionRequest
from router.http.sampling_fields import Streaming
from router.text.text_model import TextModel


class CompletionAnswer:
    """An AnswerShape. `echo_texts` are the prompts' texts when they begin the answer, else empty."""

    def __init__(
        self,
        request: CompletionRequest,
        *,
        id: str,
        model: str,
        created_s: int,
        text: TextModel,
        echo_texts: Sequence[str] = (),
    ) -> None:
        self.id = id
        self._request = request
        self._text = text
        self._head: Json = {"id": id, "object": "text_completion", "created": created_s, "model": model}
        self._echo_texts = echo_texts
        self._logprob_offsets: dict[int, int] = {}  # choice -> characters told in logprobs so far
        self._begun: set[int] = set()  # choices that were streamed from
        self._prompt_token_ids: dict[int, tuple[int, ...]] = {}  # prompt -> ids, when they have come

    @property
    def streaming(self) -> Streaming:
        return self._request.streaming

    def commands(self) -> list[GenerateCommand]:
        request, scheduling = self._request, self._request.scheduling
        several = len(request.prompts) > 1
        return [
            GenerateCommand(
                request_id=f"{self.id}-{index}" if several else self.id,
                model=request.model,
                prompt=prompt,
                sampling=request.sampling,
                priority=scheduling.priority,
                deadline_s=scheduling.deadline_s,
                ttft_slo_s=scheduling.ttft_slo_s,
                tpot_slo_s=scheduling.tpot_slo_s,
                route=scheduling.route,
                cache_salt=scheduling.cache_salt,
                return_prompt_token_ids=request.return_token_ids,
            )
            for index, prompt in enumerate(request.prompts)
        ]

    def whole(self, answers: Sequence[CollectedAnswer]) -> Json:
        choices = [
            self._choice(prompt_index, index, answer, choice)
            for prompt_index, answer in enumerate(answers)
            for index, choice in enumerate(answer.choices)
        ]
        usage = total_usage([answer.usage for answer in answers])
        return {**self._head, "choices": choices, "usage": usage_json(usage)}

    def chunks(self, prompt_index: int, event: GenerateEvent) -> list[Json]:
        if event.prompt_token_ids is not None:
            self._prompt_token_ids[prompt_index] = event.prompt_token_ids
        every_token = self._request.return_token_ids or self._request.sampling.logprobs is not None
        return [
            {**self._head, "choices": [self._chunk_choice(prompt_index, delta)]}
            for delta in event.choices
            if has_news(delta, every_token=every_token)
        ]

    def usage_chunk(self, usage: Usage) -> Json:
        return {**self._head, "choices": [], "usage": usage_json(usage)}

    def _choice(self, prompt_index: int, index: int, answer: CollectedAnswer, choice: CollectedChoice) -> Json:
        number = self._number(prompt_index, index)
        text = self._echo_texts[prompt_index] + choice.text if self._echo_texts else choice.text
        shaped: Json = {
            "index": number,
            "text": text,
            "logprobs": self._logprobs(number, choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": stop_reason(choice, self._request.sampling.stop_token_ids),
        }
        if self._request.return_token_ids:
            shaped["token_ids"] = choice.token_ids
            shaped["prompt_token_ids"] = list(answer.prompt_token_ids)
        if answer.prompt_logprobs is not None:
            shaped["prompt_logprobs"] = prompt_logprobs_json(self._text, answer.prompt_logprobs)
        return shaped

    def _chunk_choice(self, prompt_index: int, delta: ChoiceDelta) -> Json:
        number = self._number(prompt_index, delta.index)
        first = number not in self._begun
        self._begun.add(number)
        text = self._echo_texts[prompt_index] + delta.text if self._echo_texts and first else delta.text
        shaped: Json = {
            "index": number,
            "text": text,
            "logprobs": self._logprobs(number, delta.logprobs),
            "finish_reason": delta.finish_reason,
            "stop_reason": stop_reason(delta, self._request.sampling.stop_token_ids),
        }
        if self._request.return_token_ids:
            shaped["token_ids"] = list(delta.token_ids)
            if first:
                shaped["prompt_token_ids"] = list(self._prompt_token_ids.get(prompt_index, ()))
        return shaped

    def _number(self, prompt_index: int, index: int) -> int:
        return prompt_index * self._request.sampling.n + index

    def _logprobs(self, number: int, logprobs: Sequence[TokenLogprob]) -> Json | None:
        """OpenAI's older form. `text_offset` counts the characters of the tokens told before."""
        if self._request.sampling.logprobs is None:
            return None
        offset = self._logprob_offsets.get(number, 0)
        shaped: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token in logprobs:
            label = self._label(token.token_id)
            top = {self._label(other.token_id): finite(other.logprob) for other in token.top}
            shaped["tokens"].append(label)
            shaped["token_logprobs"].append(finite(token.logprob))
            shaped["top_logprobs"].append({**top, label: finite(token.logprob)})
            shaped["text_offset"].append(offset)
            # Characters that begin in this token: bytes that continue none.
            offset += sum(byte & 0xC0 != 0x80 for byte in self._text.token_text(token.token_id).data)
        self._logprob_offsets[number] = offset
        return shaped

    def _label(self, token_id: int) -> str:
        """A token's text, or its bytes as OpenAI writes them where it is only a part of a character."""
        text, data = self._text.token_text(token_id)
        if "\ufffd" not in text:
            return text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
