"""Token strings to text, one token at a time, with the result that `Tokenizer.decode` has on all of them at once.

`tokenizers.decoders.DecodeStream` raises on byte sequences that are not UTF-8 and loses what follows them, which a
sampling model does write; so the decoder of tokenizer.json is read here and run as a chain of incremental stages.
A decoder that has no incremental form here is refused by name.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from common.errors import UnsupportedModelError

# A token is looked up again and again: what is remembered of one takes about 200 bytes.
MAX_REMEMBERED_TOKENS = 16384
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class DecoderStage(Protocol):
    """One decoder at work on one answer. Takes pieces (token strings, or parts of one string), gives pieces."""

    def feed(self, pieces: list[str]) -> list[str]: ...

    def flush(self) -> list[str]:
        """What was held back; nothing more is fed."""
        ...


class TokenDecoder:
    """The incremental decoder of one answer."""

    def __init__(self, stages: list[DecoderStage]) -> None:
        self._stages = stages

    def feed(self, tokens: list[str]) -> str:
        """Text that became certain. An unfinished character, or a run of byte tokens, is held back."""
        pieces = tokens
        for stage in self._stages:
            pieces = stage.feed(pieces)
        return "".join(pieces)

    def flush(self) -> str:
        pieces: list[str] = []
        for stage in self._stages:
            pieces = stage.feed(pieces) + stage.flush()
        return "".join(pieces)


class DecoderPlan:
    """What the `decoder` of a tokenizer.json does. Immutable; makes a TokenDecoder for each answer."""

    def __init__(self, factories: list[Callable[[], DecoderStage]], token_bytes: Callable[[str], bytes]) -> None:
        self._factories = factories
        self.token_bytes = token_bytes  # one token string -> the bytes it stands for in the middle of a text

    @classmethod
    def parse(cls, tokenizer_json: str) -> DecoderPlan:
        """Raises UnsupportedModelError that names the decoder when it can't run incrementally."""
        decoder = json.loads(tokenizer_json).get("decoder")
        if decoder is None:
            return cls([_SpaceJoin], str.encode)
        parser = _PlanParser()
        for entry in decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]:
            parser.add(entry)
        return cls(parser.factories, parser.token_bytes)

    def start(self) -> TokenDecoder:
        return TokenDecoder([factory() for factory in self._factories])


class _PlanParser:
    """Turns decoder entries into stages. `_fused`: from here on pieces are parts of one string, not tokens."""

    def __init__(self) -> None:
        self.factories: list[Callable[[], DecoderStage]] = []
        self._fused = False
        self._byte_level = False
        self._byte_fallback = False
        self._replacements: list[tuple[str, str]] = []

    def add(self, entry: Mapping[str, Any]) -> None:
        kind = entry["type"]
        match kind:
            case "ByteLevel" if not self._fused:
                self.factories.append(_ByteLevel)
                self._fused = self._byte_level = True
            case "ByteFallback" if not self._fused:
                self.factories.append(_ByteFallback)
                self._byte_fallback = True
            case "Metaspace" if not self._fused:
                replacement, strip_first = entry["replacement"], entry.get("prepend_scheme", "always") != "never"
                self.factories.append(lambda: _Metaspace(replacement, strip_first))
                self._replacements.append((replacement, " "))
            case "Replace":
                self._add_replace(entry)
            case "Strip" if entry["stop"] == 0 or not self._fused:
                content, start, stop = entry["content"], entry["start"], entry["stop"]
                if self._fused:
                    self.factories.append(lambda: _StripStart(content, start))
                else:
                    self.factories.append(lambda: _StripTokens(content, start, stop))
            case "Fuse":
                self._fused = True
            case _:
                raise UnsupportedModelError(
                    f"tokenizer decoder {kind!r} at this place (supported: ByteLevel, ByteFallback, Metaspace, "
                    "Replace, Strip, Fuse, and a Sequence of them)"
                )

    def _add_replace(self, entry: Mapping[str, Any]) -> None:
        pattern, content = entry["pattern"].get("String"), entry["content"]
        if pattern is None or (self._fused and len(pattern) != 1):
            raise UnsupportedModelError(
                f"tokenizer decoder 'Replace' of {entry['pattern']} (supported: a string; after Fuse, one character)"
            )
        self.factories.append(lambda: _Replace(pattern, content))
        self._replacements.append((pattern, content))

    def token_bytes(self, token: str) -> bytes:
        if self._byte_level:
            return _byte_level_bytes(token)
        if self._byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for pattern, content in self._replacements:
            token = token.replace(pattern, content)
        return token.encode()


class _ByteLevel:
    """Tokens spell bytes in GPT-2's alphabet; an added token outside it stands for its own UTF-8."""

    def __init__(self) -> None:
        # "replace" gives one U+FFFD for each maximal part of a broken character, like Rust's from_utf8_lossy.
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._in_character = False

    def feed(self, pieces: list[str]) -> list[str]:
        # Nearly always one token, of whole characters.
        if len(pieces) == 1 and not self._in_character and (text := _whole_characters(pieces[0])) is not None:
            return [text]
        text = self._utf8.decode(b"".join([_byte_level_bytes(piece) for piece in pieces]))
        self._in_character = bool(self._utf8.getstate()[0])
        return [text]

    def flush(self) -> list[str]:
        return [self._utf8.decode(b"", final=True)]


class _ByteFallback:
    """`<0xE2>` stands for a byte. A run of them becomes its text, or one U+FFFD each if it is not UTF-8.

    The whole run is judged at once, so it is held back until another token comes: `Tokenizer.decode` takes back
    characters that were complete when a later byte of the run breaks it.
    """

    def __init__(self) -> None:
        self._run = bytearray()

    def feed(self, pieces: list[str]) -> list[str]:
        out: list[str] = []
        for piece in pieces:
            if match := _BYTE_TOKEN.fullmatch(piece):
                self._run.append(int(match[1], 16))
            else:
                out += self.flush()
                out.append(piece)
        return out

    def flush(self) -> list[str]:
        if not self._run:
            return []
        try:
            pieces = [self._run.decode("utf-8")]
        except UnicodeDecodeError:
            pieces = ["\ufffd"] * len(self._run)
        self._run.clear()
        return pieces


class _Metaspace:
    """`▁` is a space; the first token loses its own when the tokenizer put one before the text."""

    def __init__(self, replacement: str, strip_first: bool) -> None:
        self._replacement = replacement
        self._at_start = strip_first

    def feed(self, pieces: list[str]) -> list[str]:
        out = [piece.replace(self._replacement, " ") for piece in pieces]
        if pieces and self._at_start:
            self._at_start = False
            out[0] = pieces[0].replace(self._replacement, "")
        return out

    def flush(self) -> list[str]:
        return []


class _Replace:
    def __init__(self, pattern: str, content: str) -> None:
        self._pattern = pattern
        self._content = content

    def feed(self, pieces: list[str]) -> list[str]:
        return [piece.replace(self._pattern, self._content) for piece in pieces]

    def flush(self) -> list[str]:
        return []


class _StripTokens:
    """Takes up to `start` and `stop` characters `content` off each token's ends."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content = content
        self._start = start
        self._stop = stop

    def feed(self, pieces: list[str]) -> list[str]:
        return [self._strip(piece) for piece in pieces]

    def flush(self) -> list[str]:
        return []

    def _strip(self, piece: str) -> str:
        piece, _ = _strip_start(piece, self._content, self._start)
        for _ in range(self._stop):
            piece = piece.removesuffix(self._content)
        return piece


class _StripStart:
    """Takes up to `start` characters `content` off the start of the whole text."""

    def __init__(self, content: str, start: int) -> None:
        self._content = content
        self._left = start

    def feed(self, pieces: list[str]) -> list[str]:
        if not self._left:
            return pieces
        text, taken = _strip_start("".join(pieces), self._content, self._left)
        self._left = 0 if text else self._left - taken
        return [text]

    def flush(self) -> list[str]:
        return []


class _SpaceJoin:
    """No decoder: tokens are words."""

    def __init__(self) -> None:
        self._started = False

    def feed(self, pieces: list[str]) -> list[str]:
        if not pieces:
            return pieces
        lead = " " if self._started else ""
        self._started = True
        return [lead + " ".join(pieces)]

    def flush(self) -> list[str]:
        return []


def _strip_start(text: str, content: str, limit: int) -> tuple[str, int]:
    taken = 0
    while taken < limit and text.startswith(content):
        text = text[len(content) :]
        taken += 1
    return text, taken


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes (openai/gpt-2, encoder.py, bytes_to_unicode)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + offset): byte for offset, byte in enumerate(others)})
    return alphabet


_BYTE_OF_CHARACTER: Mapping[str, int] = _byte_alphabet()


def _byte_level_bytes(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:
        return token.encode()


@lru_cache(maxsize=MAX_REMEMBERED_TOKENS)
def _whole_characters(token: str) -> str | None:
    """The text of a byte-level token, or None when it holds a part of a character."""
    try:
        return _byte_level_bytes(token).decode()
    except UnicodeDecodeError:
        return None
