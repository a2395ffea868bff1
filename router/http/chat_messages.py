"""Chat messages as templates expect them: content as one string, tool-call arguments as objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import InvalidRequestError


def decode_messages(messages: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    """Raises InvalidRequestError with the message's place, such as `messages[1].content`."""
    return tuple(_message(f"messages[{index}]", message) for index, message in enumerate(messages))


def _message(place: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidRequestError(place, "must be an object")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequestError(f"{place}.role", "must be a string")
    decoded = dict(message)
    decoded["content"] = _content(f"{place}.content", message.get("content"))
    if decoded["content"] is None:
        # An assistant's message that only calls tools has none; templates expect an empty string.
        if role != "assistant":
            raise InvalidRequestError(f"{place}.content", "is required")
        decoded["content"] = ""
    if message.get("tool_calls"):
        decoded["tool_calls"] = _tool_calls(f"{place}.tool_calls", message["tool_calls"])
    else:
        decoded.pop("tool_calls", None)
    return decoded


def _content(place: str, content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(place, "must be a string or an array of text parts")
    return "\n".join(_part(f"{place}[{index}]", part) for index, part in enumerate(content))


def _part(place: str, part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise InvalidRequestError(place, "must be an object with a type")
    kind = part.get("type")
    # A refusal is text that an earlier answer gave.
    name = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}.get(str(kind))
    if name is None:
        raise InvalidRequestError(place, f"parts of type {kind!r} are not supported; only text is")
    text = part.get(name)
    if not isinstance(text, str):
        raise InvalidRequestError(f"{place}.{name}", "must be a string")
    return text


def _tool_calls(place: str, calls: Any) -> list[Any]:
    """OpenAI's API carries arguments as a JSON string; templates write them out as JSON themselves."""
    if not isinstance(calls, list):
        raise InvalidRequestError(place, "must be an array")
    decoded = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise InvalidRequestError(f"{place}[{index}]", "must be an object with a function")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            arguments = _arguments(f"{place}[{index}].function.arguments", arguments)
        decoded.append({**call, "function": {**function, "arguments": {} if arguments is None else arguments}})
    return decoded


def _arguments(place: str, text: str) -> Any:
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(place, f"is not JSON: {error}") from None
