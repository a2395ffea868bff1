"""The text of one choice, as its tokens come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from router.text.stop_strings import StopStrings
from router.text.token_decoder import TokenDecoder


class TextDelta(NamedTuple):
    """Text that became certain with one push.

    `stop_string` is the one that ended the answer; the text stops before it. `num_tokens` counts the pushed tokens
    that belong to the answer: all of them, or those up to the token that completed the stop string.
    """

    text: str
    num_tokens: int
    stop_string: str | None = None


class TextStream:
    """Incremental detokenising and stop strings of one choice.

    Unfinished characters and possible beginnings of stop strings are held back. Without stop strings, the texts
    together are `Tokenizer.decode(all token ids, skip_special_tokens=True)`, wherever the answer ends. One owner,
    no thread of its own; a push costs O(new tokens).
    """

    def __init__(
        self,
        decoder: TokenDecoder,
        token_string: Callable[[int], str | None],
        *,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
    ) -> None:
        """`token_string` gives None for tokens that have no text. Before `min_tokens`, stop strings don't count."""
        self._decoder = decoder
        self._token_string = token_string
        self._scanner = StopStrings(stop)
        self._has_stop = bool(stop)
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._ended = False

    def push(self, token_ids: Sequence[int], *, finished: bool = False, stop_token: bool = False) -> TextDelta:
        """Adds tokens. `finished`: no more will come. `stop_token`: the last one is the stop token that ended the
        answer; it counts as a token and has no text.

        After a stop string or `finished`, the stream has ended and must not be pushed to.
        """
        assert not self._ended, "the answer has ended"
        shown = token_ids[:-1] if stop_token and token_ids else token_ids
        delta = self._scan_each(shown) if self._has_stop else self._decode_all(shown)
        if delta.stop_string is not None:
            self._ended = True
            return delta
        if not finished:
            return delta
        self._ended = True
        rest = self._scanner.feed(self._decoder.flush())
        text = delta.text + rest.text + self._scanner.flush()
        return TextDelta(text, len(token_ids), rest.stop_string)

    def _decode_all(self, token_ids: Sequence[int]) -> TextDelta:
        return TextDelta(self._decoder.feed(self._strings(token_ids)), len(token_ids))

    def _scan_each(self, token_ids: Sequence[int]) -> TextDelta:
        # One by one, to know which token completed a stop string.
        texts: list[str] = []
        for position, token_id in enumerate(token_ids):
            text = self._decoder.feed(self._strings((token_id,)))
            self._num_tokens += 1
            if self._num_tokens <= self._min_tokens:
                texts.append(text)
                continue
            scan = self._scanner.feed(text)
            texts.append(scan.text)
            if scan.stop_string is not None:
                return TextDelta(text="".join(texts), num_tokens=position + 1, stop_string=scan.stop_string)
        return TextDelta(text="".join(texts), num_tokens=len(token_ids))

    def _strings(self, token_ids: Sequence[int]) -> list[str]:
        look_up = self._token_string
        return [string for token_id in token_ids if (string := look_up(token_id)) is not None]
