"""Templates render byte for byte as transformers renders them, family by family."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from common.errors import InvalidRequestError, UnsupportedModelError
from router.text.chat_template import ChatTemplate
from tests.support.chat_templates import FAMILIES
from tests.support.tokenizers import byte_level_tokenizer

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<|endoftext|>", "pad_token": "<|im_end|>"}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Gets the \"weather\" — <b>now</b> & 'then'",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Brno", "Köln"]}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]

WITHOUT_TOOLS = {"smollm2", "qwen2", "generation"}

CALL = {"id": "abc123def", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Hello <world> & 'you' 日本 🙂"}],
    "system": [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": "Hi"}],
    "turns": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<think>\nadd\n</think>\n\n2"},
        {"role": "user", "content": " and 2+2? "},
    ],
    "reasoning": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2", "reasoning": "one and one", "name": None},
    ],
    "tool": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": '{"temperature": 21.5}', "tool_call_id": "abc123def", "name": "get_weather"},
    ],
    "empty": [{"role": "user", "content": ""}],
    "order": [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": "?"}],
    "no_content": [{"role": "user"}],
    "marks": [{"role": role, "content": role.upper()} for role in ("user", "assistant", "skip", "user", "end", "user")],
}

OPTIONS: dict[str, dict[str, Any]] = {
    "prompt": {"add_generation_prompt": True},
    "bare": {"add_generation_prompt": False},
    "tools": {"add_generation_prompt": True, "tools": TOOLS},
    "kwargs": {"add_generation_prompt": True, "enable_thinking": False, "date_string": "1 Jan 2030", "bos_token": "B"},
}


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer(), **SPECIAL_TOKENS)


@pytest.mark.parametrize("family", FAMILIES)
def test_renders_as_transformers_does(family, reference):
    template = ChatTemplate({"default": FAMILIES[family]}, SPECIAL_TOKENS)
    num_rendered = 0
    for messages in CONVERSATIONS.values():
        for options in OPTIONS.values():
            own = {key: value for key, value in options.items() if key in ("add_generation_prompt", "tools")}
            kwargs = {key: value for key, value in options.items() if key not in own}
            if "tools" in own and family in WITHOUT_TOOLS:
                with pytest.raises(InvalidRequestError, match="does not use them") as ignored:
                    template.render(messages, **own)
                assert ignored.value.field == "tools"
                assert template.render(CONVERSATIONS["one"], tools=[]) == template.render(CONVERSATIONS["one"])
                continue
            try:
                expected = reference.apply_chat_template(
                    messages, chat_template=FAMILIES[family], tokenize=False, **options
                )
            except Exception:
                with pytest.raises(InvalidRequestError) as refused:
                    template.render(messages, **own, template_kwargs=kwargs)
                assert refused.value.field == "messages"
                continue
            num_rendered += 1
            assert template.render(messages, **own, template_kwargs=kwargs) == expected
    assert num_rendered >= 12


def test_the_templates_own_refusal_is_told():
    template = ChatTemplate({"default": FAMILIES["mistral"]}, SPECIAL_TOKENS)
    with pytest.raises(InvalidRequestError, match="must alternate"):
        template.render(CONVERSATIONS["order"])


def test_a_model_without_template_refuses_messages():
    with pytest.raises(InvalidRequestError, match="no chat template") as refused:
        ChatTemplate({}, {}).render(CONVERSATIONS["one"])
    assert refused.value.field == "messages"


def test_no_messages_are_refused():
    with pytest.raises(InvalidRequestError, match="at least one"):
        ChatTemplate({"default": FAMILIES["smollm2"]}, {}).render([])


def test_arguments_can_not_be_replaced_by_template_kwargs():
    template = ChatTemplate({"default": FAMILIES["smollm2"]}, {})
    with pytest.raises(InvalidRequestError, match="'messages' can't be set"):
        template.render(CONVERSATIONS["one"], template_kwargs={"messages": []})


def test_named_templates_tool_use_serves_requests_with_tools():
    template = ChatTemplate({"default": "plain", "tool_use": "{{ tools | length }} tools"}, {})
    assert template.render(CONVERSATIONS["one"]) == "plain"
    assert template.render(CONVERSATIONS["one"], tools=TOOLS) == f"{len(TOOLS)} tools"
    with pytest.raises(InvalidRequestError, match="rag"):
        ChatTemplate({"rag": "x"}, {}).render(CONVERSATIONS["one"])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ namespace(__class__=1) }}",
        "{{ dict.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
    ],
)
def test_the_sandbox_holds(source):
    with pytest.raises(InvalidRequestError):
        ChatTemplate({"default": source}, {}).render(CONVERSATIONS["one"])


def test_a_template_that_does_not_compile_is_refused_at_load():
    with pytest.raises(UnsupportedModelError, match="line 1"):
        ChatTemplate({"default": "{% if %}"}, {})
