"""What a command line of `slipstream` would run with, by the parser and the resolver that the command itself has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from common.config import Role
from slipstream.commands.group import slipstream
from slipstream.commands.settings_command import sources_of
from slipstream.settings import COMMAND_CONFIGS, resolve


def config_of(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """Raises click.UsageError for an unknown command or flag, and ConfigError."""
    with slipstream.make_context("slipstream", list(arguments)) as context:
        name, command, rest = slipstream.resolve_command(context, list(arguments))
        assert name is not None and command is not None
        with command.make_context(name, rest) as own:
            sources = sources_of(name, own.params, environment or {})
    fixed = {"role": Role.PREFILL} if name == "prefill" else None  # as in slipstream/commands/worker.py
    return resolve(COMMAND_CONFIGS[name], sources, fixed)


def flat(config: Any) -> dict[str, Any]:
    """Settings by name, those of nested configs among them."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        values |= flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return values
