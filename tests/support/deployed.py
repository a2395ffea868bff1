"""The files of deploy/ and what may be named in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from slipstream.commands.group import slipstream
from slipstream.settings import CONFIG_VARIABLE, setting_variables

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
# SLIPSTREAM_CACHE is read where models are kept, and is no setting.
KNOWN_VARIABLES = setting_variables() | {CONFIG_VARIABLE, "SLIPSTREAM_CACHE"}
KNOWN_FLAGS = frozenset(
    flag for command in slipstream.commands.values() for parameter in command.params for flag in parameter.opts
)


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text_of("kubernetes.yaml")))


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def variables_in(text: str) -> set[str]:
    """Those that are written out: `SLIPSTREAM_…` stands for all."""
    return set(re.findall(r"\bSLIPSTREAM_[A-Z_]*[A-Z]\b", text))


def strings_in(document: Any) -> Iterator[str]:
    """All strings of a JSON or YAML document but for keys."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from strings_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from strings_in(value)
