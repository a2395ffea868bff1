"""The answer to `POST /v1/chat/completions`, whole or in chunks."""

from __future__ import annotations

from collections.abc import Sequence

from common.request import TokenLogprob
from router.generation import ChoiceDelta, GenerateCommand, GenerateEvent, Usage
from router.http.answer_shape import Json, finite, has_news, prompt_logprobs_json, stop_reason, usage_json
from router.http.chat_request import ChatRequest
from router.http.collected_answer import CollectedAnswer, CollectedChoice, total_usage
from router.http.sampling_fields import Streaming
from router.text.text_model import TextModel


class ChatAnswer:
    """An AnswerShape."""

    def __init__(self, request: ChatRequest, *, id: str, model: str, created_s: int, text: TextModel) -> None:
        self.id = id
        self._request = request
        self._text = text
        self._head: Json = {"id": id, "created": created_s, "model": model}
        self._begun = False

    @property
    def streaming(self) -> Streaming:
        return self._request.streaming

    def commands(self) -> list[GenerateCommand]:
        request, scheduling = self._request, self._request.scheduling
        return [
            GenerateCommand(
                request_id=self.id,
                model=request.model,
                prompt=request.prompt,
                sampling=request.sampling,
                priority=scheduling.priority,
                deadline_s=scheduling.deadline_s,
                ttft_slo_s=scheduling.ttft_slo_s,
                tpot_slo_s=scheduling.tpot_slo_s,
                route=scheduling.route,
                cache_salt=scheduling.cache_salt,
                return_prompt_token_ids=request.return_token_ids,
            )
        ]

    def whole(self, answers: Sequence[CollectedAnswer]) -> Json:
        (answer,) = answers
        shaped: Json = {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(index, choice) for index, choice in enumerate(answer.choices)],
            "usage": usage_json(total_usage([answer.usage])),
        }
        if self._request.return_token_ids:
            shaped["prompt_token_ids"] = list(answer.prompt_token_ids)
        if answer.prompt_logprobs is not None:
            shaped["prompt_logprobs"] = prompt_logprobs_json(self._text, answer.prompt_logprobs)
        return shaped

    def chunks(self, prompt_index: int, event: GenerateEvent) -> list[Json]:
        chunks = self._first_chunks(event)
        every_token = self._request.return_token_ids or self._request.sampling.logprobs is not None
        chunks += [
            self._chunk(self._chunk_choice(delta))
            for delta in event.choices
            if has_news(delta, every_token=every_token)
        ]
        return chunks

    def usage_chunk(self, usage: Usage) -> Json:
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage_json(usage)}

    def _choice(self, index: int, choice: CollectedChoice) -> Json:
        shaped: Json = {
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": stop_reason(choice, self._request.sampling.stop_token_ids),
        }
        if self._request.return_token_ids:
            shaped["token_ids"] = choice.token_ids
        return shaped

    def _first_chunks(self, event: GenerateEvent) -> list[Json]:
        """The role of every choice, once, before any text."""
        if self._begun or not (event.choices or event.prompt_token_ids):
            return []
        self._begun = True
        chunks = [
            self._chunk({"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
            for index in range(self._request.sampling.n)
        ]
        if self._request.return_token_ids and event.prompt_token_ids is not None:
            chunks[0]["prompt_token_ids"] = list(event.prompt_token_ids)
        return chunks

    def _chunk_choice(self, delta: ChoiceDelta) -> Json:
        shaped: Json = {
            "index": delta.index,
            "delta": {"content": delta.text} if delta.text else {},
            "logprobs": self._logprobs(delta.logprobs),
            "finish_reason": delta.finish_reason,
            "stop_reason": stop_reason(delta, self._request.sampling.stop_token_ids),
        }
        if self._request.return_token_ids:
            shaped["token_ids"] = list(delta.token_ids)
        return shaped

    def _chunk(self, choice: Json) -> Json:
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> Json | None:
        if self._request.sampling.logprobs is None:
            return None
        content = []
        for token in logprobs:
            entry = self._token(token.token_id, token.logprob)
            entry["top_logprobs"] = [self._token(top.token_id, top.logprob) for top in token.top]
            content.append(entry)
        return {"content": content, "refusal": None}

    def _token(self, token_id: int, logprob: float) -> Json:
        text = self._text.token_text(token_id)
        return {"token": text.text, "logprob": finite(logprob), "bytes": list(text.data)}
