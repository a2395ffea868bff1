"""Tokenising and templating in threads, so that the event loop never waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from common.errors import InvalidRequestError
from router.generation import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.text.text_model import TextModel

_Result = TypeVar("_Result")


class TextWorkers:
    """The threads that turn prompts into token ids. Owned by the event loop; closed by whoever made it.

    Detokenising stays on the loop (`TextModel.stream`): a push of one token takes 2 to 10 µs, so a step's worth of
    64 requests about half a millisecond, while a hop to a thread and back costs 50 to 100 µs for each.
    """

    def __init__(self, text: TextModel, *, num_threads: int = 2) -> None:
        self.text = text
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="text")

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Runs other text work of more than a millisecond in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Waits for the work that runs, drops what has not started."""
        self._executor.shutdown(cancel_futures=True)

    def token_ids(self, prompt: Prompt, *, max_model_len: int) -> tuple[int, ...]:
        """Token ids of any prompt, at least one; those that a caller gives are taken as they are. Blocks: for `run`.

        `max_model_len` bounds the text that is tokenised at all, not the number of tokens that come of it. Raises
        InvalidRequestError that names `prompt`, `messages` or `chat_template_kwargs`.
        """
        match prompt:
            case TextPrompt():
                ids = tuple(self.text.encode(prompt.text, max_model_len=max_model_len))
            case ChatPrompt():
                text = self.text.render_chat(
                    prompt.messages,
                    add_generation_prompt=prompt.add_generation_prompt,
                    tools=prompt.tools,
                    template_kwargs=prompt.template_kwargs,
                )
                # The template has written the special tokens already.
                ids = tuple(
                    self.text.encode(text, max_model_len=max_model_len, add_special_tokens=False, field="messages")
                )
            case TokenPrompt():
                ids = tuple(prompt.token_ids)
        if not ids:
            raise InvalidRequestError("messages" if isinstance(prompt, ChatPrompt) else "prompt", "has no tokens")
        return ids
