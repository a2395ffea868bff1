"""The prompts: what each is made of, and how long it is cut.

Owns names, sources and lengths. Tokenising is the caller's business: the references do it with transformers, the
served side at the router. Lengths are in tokens of the demo model's tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NUM_NEW_TOKENS = 64

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One prompt before it is tokenised: `text`, or `messages` for the chat template; `cut` keeps its first tokens.

    A source that is not cut can be sent as it stands, so that the router's own tokenising is part of the test.
    """

    name: str
    text: str = ""
    messages: tuple[Message, ...] = ()
    cut: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    name: str
    token_ids: tuple[int, ...]
    source: Source


# name: (texts put together, tokens kept; None: all). The lengths stand on, and one beside, multiples of 16 and 64.
_TEXTS: dict[str, tuple[tuple[str, ...], int | None]] = {
    "one_token": (("english_harbour",), 1),
    "two_tokens": (("code_c",), 2),
    "korean_15": (("korean",), 15),
    "hebrew_16": (("hebrew",), 16),
    "greek_17": (("greek",), 17),
    "emoji_31": (("emoji",), 31),
    "swedish_32": (("swedish",), 32),
    "czech_33": (("czech",), 33),
    "dialogue": (("dialogue",), None),
    "hindi_48": (("hindi",), 48),
    "ukrainian_63": (("ukrainian",), 63),
    "dutch_64": (("dutch",), 64),
    "turkish_65": (("turkish",), 65),
    "shell_79": (("code_shell",), 79),
    "javascript_80": (("code_javascript",), 80),
    "go_95": (("code_go",), 95),
    "arabic_97": (("arabic",), 97),
    "portuguese_111": (("portuguese",), 111),
    "erlkoenig_127": (("erlkoenig",), 127),
    "rust_128": (("code_rust",), 128),
    "sonnet_129": (("sonnet",), 129),
    "japanese": (("japanese",), None),
    "chinese": (("chinese",), None),
    "sql": (("code_sql",), None),
    "c": (("code_c",), None),
    "italian": (("italian",), None),
    "mathematics": (("mathematics",), None),
    "letter_191": (("english_letter",), 191),
    "harbour_192": (("english_harbour",), 192),
    "harbour_193": (("english_harbour",), 193),
    "russian": (("russian",), None),
    "polish": (("polish",), None),
    "spanish_255": (("spanish",), 255),
    "french_256": (("french",), 256),
    "german_257": (("german",), 257),
    "table": (("table_planets",), None),
    "json": (("json_orders",), None),
    "python": (("code_python",), None),
    "log": (("log_lines",), None),
    "harbour_512": (("english_harbour",), 512),
    "code_640": (("code_rust", "code_python", "code_sql"), 640),
    "harbour": (("english_harbour",), None),
    "languages_1025": (("german", "spanish", "polish", "italian", "russian"), 1025),
    "anthology_1280": (("sonnet", "english_letter", "english_harbour", "english_manual"), 1280),
    "everything_1500": (("french", "english_harbour", "english_manual", "english_letter", "sonnet"), 1500),
}
_REPEATED = "la la la, said the bird; "


def sources() -> tuple[Source, ...]:
    """Every prompt's source, texts first, then repeated text, then chats."""
    texts = tuple(
        Source(name=name, text="\n\n".join(_read_text(part) for part in parts), cut=cut)
        for name, (parts, cut) in _TEXTS.items()
    )
    repeated = Source(name="repeated_96", text=_REPEATED * 40, cut=96)
    conversations: dict[str, list[Message]] = json.loads((FOLDER / "chats.json").read_text(encoding="utf-8"))
    chats = tuple(Source(name=f"chat_{name}", messages=tuple(said)) for name, said in conversations.items())
    return (*texts, repeated, *chats)


def build_prompts(
    encode: Callable[[str], Sequence[int]], render_chat: Callable[[Sequence[Message]], str]
) -> tuple[Prompt, ...]:
    """The prompts as token ids. `encode` adds the model's special tokens, `render_chat` the generation prompt.

    Raises ValueError when a text has fewer tokens than it is to be cut to.
    """
    prompts = []
    for source in sources():
        text = render_chat(source.messages) if source.messages else source.text
        token_ids = tuple(encode(text))
        if source.cut is not None and len(token_ids) < source.cut:
            raise ValueError(f"{source.name} has only {len(token_ids)} tokens")
        prompts.append(Prompt(name=source.name, token_ids=token_ids[: source.cut], source=source))
    return tuple(prompts)


def _read_text(name: str) -> str:
    return (FOLDER / "texts" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
