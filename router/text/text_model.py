"""One model's text: its tokenizer and its chat templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from common.errors import ConfigError, InvalidRequestError
from router.text.chat_template import ChatTemplate
from router.text.text_stream import TextStream
from router.text.token_decoder import MAX_REMEMBERED_TOKENS, DecoderPlan
from router.text.tokenizer_folder import TokenizerFolder


class TokenText(NamedTuple):
    """One token alone. `text` has U+FFFD where the bytes are only a part of a character."""

    text: str
    data: bytes


class TextModel:
    """Tokenizer and chat templates of a model folder. Immutable once loaded, and safe in several threads at once."""

    def __init__(self, tokenizer: Tokenizer, folder: TokenizerFolder) -> None:
        self._tokenizer = tokenizer
        self._template = ChatTemplate(folder.chat_templates, folder.special_tokens)
        self._remembered_string = lru_cache(maxsize=MAX_REMEMBERED_TOKENS)(self._token_string)
        self._decoder = DecoderPlan.parse(tokenizer.to_str())
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = 1 + max(vocabulary.values())
        self.longest_token_bytes = max(len(self._decoder.token_bytes(token)) for token in vocabulary)
        self.max_model_len = folder.max_model_len
        self.sampling_defaults = folder.sampling_defaults
        self.eos_token_ids = frozenset(folder.eos_token_ids) or _ids_of(tokenizer, folder.special_tokens)

    @classmethod
    def load(cls, folder: Path) -> TextModel:
        """Reads tokenizer.json, the chat templates and the special tokens of a folder.

        Raises ConfigError (field `model`) when a file is missing or broken, UnsupportedModelError for a decoder
        that can't stream or a template that does not compile.
        """
        files = TokenizerFolder.read(folder)
        try:
            tokenizer = Tokenizer.from_file(str(files.tokenizer_file))
        except Exception as error:  # the library raises bare Exception
            raise ConfigError("model", f"{files.tokenizer_file} can't be read: {error}") from error
        # Training-time settings; a server neither cuts nor pads a prompt.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return cls(tokenizer, files)

    def encode(
        self, text: str, *, max_model_len: int, add_special_tokens: bool = True, field: str = "prompt"
    ) -> list[int]:
        """Token ids of a text. Takes about 0.3 s per MB: call it in a thread (`TextWorkers`).

        Raises InvalidRequestError (`field`) for text that can't fit in `max_model_len` tokens whatever they are,
        before it is tokenised, and for text that is not Unicode.
        """
        limit = max_model_len * self.longest_token_bytes
        if len(text) > limit:
            raise InvalidRequestError(field, _too_long(len(text), "characters", limit, max_model_len))
        try:
            num_bytes = len(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidRequestError(field, f"holds an unpaired surrogate at character {error.start}") from error
        if num_bytes > limit:
            raise InvalidRequestError(field, _too_long(num_bytes, "bytes", limit, max_model_len))
        # Not `encode`: that one keeps the GIL (270 ms for 630 kB), and the event loop would wait with it.
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        return list(encoding.ids)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text as transformers' `apply_chat_template` renders it. Encode it without special tokens.

        Raises InvalidRequestError, see `ChatTemplate.render`.
        """
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, tools=tools, template_kwargs=template_kwargs
        )

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def token_text(self, token_id: int) -> TokenText:
        """A token by itself, special ones included; empty for an id that is not in the vocabulary."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return TokenText("", b"")
        data = token.encode() if token_id in self._special_ids else self._decoder.token_bytes(token)
        return TokenText(data.decode("utf-8", "replace"), data)

    def stream(self, *, stop: Sequence[str] = (), min_tokens: int = 0) -> TextStream:
        """A new TextStream for one choice."""
        return TextStream(self._decoder.start(), self._remembered_string, stop=stop, min_tokens=min_tokens)

    def _token_string(self, token_id: int) -> str | None:
        if token_id in self._special_ids:
            return None
        token: str | None = self._tokenizer.id_to_token(token_id)
        return token


def _ids_of(tokenizer: Tokenizer, special_tokens: Mapping[str, str]) -> frozenset[int]:
    token_id = tokenizer.token_to_id(special_tokens.get("eos_token", ""))
    return frozenset() if token_id is None else frozenset((token_id,))


def _too_long(size: int, unit: str, limit: int, max_model_len: int) -> str:
    return f"text of {size} {unit} is too long: {max_model_len} tokens hold at most {limit} bytes"
