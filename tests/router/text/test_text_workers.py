from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer, processors

from common.errors import InvalidRequestError
from router.generation import ChatPrompt, TextPrompt, TokenPrompt
from router.text.text_model import TextModel
from router.text.text_workers import TextWorkers


@pytest.fixture
def workers(make_folder) -> Iterator[TextWorkers]:
    files = {"chat_template.jinja": "<s>{{ messages[0].content }}{{ '!' if add_generation_prompt }}{{ x }}"}
    folder = make_folder("byte_level", {"bos_token": "<s>"}, files)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 3)])
    tokenizer.save(str(folder / "tokenizer.json"))
    workers = TextWorkers(TextModel.load(folder), num_threads=2)
    yield workers
    workers.close()


async def ids_of(workers: TextWorkers, prompt, max_model_len: int = 100) -> tuple[int, ...]:
    return await workers.run(lambda: workers.token_ids(prompt, max_model_len=max_model_len))


async def test_every_kind_of_prompt_becomes_token_ids(workers):
    text = await ids_of(workers, TextPrompt(text="hi"))
    chat = await ids_of(workers, ChatPrompt(messages=[{"role": "user", "content": "hi"}], template_kwargs={"x": "?"}))
    assert workers.text.decode(text, skip_special_tokens=False) == "<s>hi"
    assert workers.text.decode(chat, skip_special_tokens=False) == "<s>hi!?"  # one BOS: the template's
    assert await ids_of(workers, TokenPrompt(token_ids=[5, 599])) == (5, 599)


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (TokenPrompt(token_ids=[]), "prompt"),
        (TextPrompt(text="x" * 10**6), "prompt"),
        (ChatPrompt(messages=[{"role": "user", "content": "x" * 10**6}]), "messages"),
        (ChatPrompt(messages=[]), "messages"),
    ],
)
async def test_a_prompt_that_can_not_be_served_names_its_field(prompt, field, workers):
    with pytest.raises(InvalidRequestError) as refused:
        await ids_of(workers, prompt)
    assert refused.value.field == field


async def test_the_event_loop_goes_on_while_a_long_text_is_tokenised(workers):
    task = asyncio.create_task(ids_of(workers, TextPrompt(text="the quick brown fox " * 100_000), 10**6))
    gaps = []
    while not task.done():
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        gaps.append(time.perf_counter() - start)
    assert len(await task) > 100_000
    assert len(gaps) > 20
    assert sorted(gaps)[len(gaps) // 2] < 0.05
