"""Chat messages to prompt text, byte for byte as transformers' `apply_chat_template(tokenize=False)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.nodes

from common.errors import InvalidRequestError, UnsupportedModelError
from router.text.template_sandbox import template_environment

# Arguments of transformers' call, which template variables must not take the place of.
RESERVED_VARIABLES = frozenset(
    {
        "messages",
        "conversation",
        "tools",
        "add_generation_prompt",
        "chat_template",
        "tokenize",
        "continue_final_message",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "tokenizer_kwargs",
        "padding",
        "truncation",
        "max_length",
    }
)

# Names under which a message's reasoning is sent; templates read the first.
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """The templates of one model. Immutable, and safe in several threads at once."""

    def __init__(self, sources: Mapping[str, str], special_tokens: Mapping[str, str]) -> None:
        """Raises UnsupportedModelError when a template does not compile."""
        environment = template_environment()
        self._special_tokens = dict(special_tokens)
        self._templates: dict[str, jinja2.Template] = {}
        self._using_tools: set[str] = set()
        for name, source in sources.items():
            try:
                parsed = environment.parse(source)
                self._templates[name] = environment.from_string(parsed)
            except jinja2.TemplateSyntaxError as error:
                raise UnsupportedModelError(f"chat template {name!r}, line {error.lineno}: {error.message}") from error
            if any(variable.name == "tools" for variable in parsed.find_all(jinja2.nodes.Name)):
                self._using_tools.add(name)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text.

        Raises InvalidRequestError: `messages` when there is no template, no message, or the template refuses them;
        `chat_template_kwargs` when a variable takes an argument's name; `tools` when the template does not use them.
        """
        name = self._select(has_tools=tools is not None)
        if tools and name not in self._using_tools:
            raise InvalidRequestError("tools", "the model's chat template does not use them: it would not see them")
        template = self._templates[name]
        if not messages:
            raise InvalidRequestError("messages", "must hold at least one message")
        variables = dict(template_kwargs or {})
        for name in variables:
            if name in RESERVED_VARIABLES:
                raise InvalidRequestError("chat_template_kwargs", f"{name!r} can't be set")
        try:
            return template.render(
                messages=[_message(message) for message in messages],
                tools=_plain(tools),
                documents=_plain(variables.pop("documents", None)),
                add_generation_prompt=add_generation_prompt,
                **{**self._special_tokens, **_plain(variables)},
            )
        except jinja2.TemplateError as error:
            raise InvalidRequestError("messages", f"the chat template refuses them: {error.message}") from error
        except Exception as error:
            # A template is a program over the caller's data: a missing or odd field ends in any Python error.
            text = f"the chat template fails on them: {type(error).__name__}: {error}"
            raise InvalidRequestError("messages", text) from error

    def _select(self, *, has_tools: bool) -> str:
        if has_tools and "tool_use" in self._templates:
            return "tool_use"
        if "default" in self._templates:
            return "default"
        if not self._templates:
            raise InvalidRequestError("messages", "this model has no chat template; send a prompt instead")
        names = ", ".join(sorted(self._templates))
        raise InvalidRequestError("messages", f"this model has chat templates by name ({names}) but no default one")


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    # Absent rather than null, as transformers does: many templates print "None" for a null content.
    plain = {key: _plain(value) for key, value in message.items() if value is not None}
    reasoning = next((plain[name] for name in _REASONING_FIELDS if plain.get(name) is not None), None)
    if reasoning is None:
        return plain
    return {"thinking": reasoning, **plain, "reasoning_content": reasoning}


def _plain(value: Any) -> Any:
    """Rebuilds data from plain JSON types, so that a template meets no object with methods of its own."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    raise InvalidRequestError("messages", f"must be JSON data, holds a {type(value).__name__}")
