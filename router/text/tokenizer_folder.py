"""What the files of a model folder say about its text: templates, special tokens, lengths, sampling.

Owns the file names and their precedence, which are those of transformers 5. Knows nothing of how text is encoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import ConfigError, InvalidRequestError
from common.request import SamplingParams

# Sampling parameters that a model may have its own defaults for.
DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFolder:
    """The text side of one model folder.

    `chat_templates` maps a template's name to its source; the unnamed one is `default`. Whether BOS and EOS are
    added to a text is said by tokenizer.json alone: where it exists, `add_bos_token` does not count.
    """

    tokenizer_file: Path
    chat_templates: Mapping[str, str]
    special_tokens: Mapping[str, str]  # bos_token, eos_token, … -> the token's text
    eos_token_ids: tuple[int, ...]  # of generation_config.json, else config.json; empty: neither says
    max_model_len: int | None  # tokens: max_position_embeddings of config.json
    sampling_defaults: SamplingParams  # of generation_config.json: what a request without them is sampled with

    @classmethod
    def read(cls, folder: Path) -> TokenizerFolder:
        """Raises ConfigError (field `model`) when the folder has no tokenizer.json or a file can't be read."""
        tokenizer_file = folder / "tokenizer.json"
        if not tokenizer_file.is_file():
            raise ConfigError("model", f"{folder} has no tokenizer.json")
        tokenizer_config = _read_json(folder / "tokenizer_config.json")
        model_config = _read_json(folder / "config.json")
        generation_file = folder / "generation_config.json"
        generation_config = _read_json(generation_file)
        eos = generation_config.get("eos_token_id", model_config.get("eos_token_id"))
        return cls(
            tokenizer_file=tokenizer_file,
            chat_templates=_chat_templates(folder, tokenizer_config),
            special_tokens=_special_tokens(folder, tokenizer_config),
            eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
            max_model_len=model_config.get("max_position_embeddings"),
            sampling_defaults=_sampling_defaults(generation_file, generation_config),
        )


def _sampling_defaults(file: Path, generation_config: Mapping[str, Any]) -> SamplingParams:
    """Those that vLLM's server applies too; as there, `do_sample` does not count."""
    given = {name: generation_config[name] for name in DEFAULTED if generation_config.get(name) is not None}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float) if name != "top_k" else int):
            raise ConfigError("model", f"{file}: {name} must be a number, is {value!r}")
    if given.get("top_k") == -1:
        given["top_k"] = 0
    try:
        return SamplingParams(**given)
    except InvalidRequestError as error:
        raise ConfigError("model", f"{file}: {error}") from error


def _chat_templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    # Files win over tokenizer_config.json; chat_template.json is the form that older processors saved.
    templates: dict[str, str] = {}
    default_file = folder / "chat_template.jinja"
    if default_file.is_file():
        templates["default"] = _read_text(default_file)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = _read_text(path)
    if templates:
        return templates
    configured = tokenizer_config.get("chat_template", _read_json(folder / "chat_template.json").get("chat_template"))
    if isinstance(configured, str):
        return {"default": configured}
    if isinstance(configured, list):
        return {str(entry["name"]): str(entry["template"]) for entry in configured}
    return {}


def _special_tokens(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    # Older folders keep them in special_tokens_map.json; it wins, but only where the configuration lists no tokens.
    sources = [tokenizer_config]
    if "added_tokens_decoder" not in tokenizer_config:
        sources.append(_read_json(folder / "special_tokens_map.json"))
    tokens: dict[str, str] = {}
    for source in sources:
        extra = source.get("extra_special_tokens")
        for name, value in {**source, **(extra if isinstance(extra, Mapping) else {})}.items():
            if isinstance(value, Mapping):  # a serialised AddedToken
                value = value.get("content")
            if name.endswith("_token") and isinstance(value, str):
                tokens[name] = value
    return tokens


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(_read_text(path))
    except ValueError as error:
        raise ConfigError("model", f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError("model", f"{path} holds no JSON object")
    return content


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("model", f"{path} can't be read: {error}") from error
