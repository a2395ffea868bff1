"""One setting: how a field of a config dataclass becomes a flag, a variable and a TOML key, and text its value.

Knows neither where values come from (`slipstream.settings`) nor any command.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from common.errors import ConfigError

VARIABLE_PREFIX = "SLIPSTREAM_"
TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field of a config, flattened: nested configs give their fields to the one that holds them.

    `value_type` is str, int, float, bool or a StrEnum. `optional` fields may be None; `repeated` ones are tuples.
    """

    name: str
    section: str
    value_type: type
    default: Any
    help: str
    optional: bool = False
    repeated: bool = False
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.upper()

    @property
    def metavar(self) -> str:
        """What stands behind the flag in help texts."""
        if self.choices:
            return "[" + "|".join(self.choices) + "]"
        return {int: "INTEGER", float: "NUMBER", bool: "[true|false]"}.get(self.value_type, "TEXT")

    @property
    def default_text(self) -> str:
        """The default as people read it; empty where the help text tells it."""
        if self.default is None or self.default == ():
            return ""
        return ", ".join(self.default) if self.repeated else str(self.default)

    def parse(self, text: str) -> Any:
        """The value that a flag or a variable says. Raises ConfigError."""
        if self.repeated:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if self.choices or self.value_type is str:
            return self._checked(text)
        if self.value_type is bool:
            return self._parse_bool(text)
        try:
            return self.value_type(text)
        except ValueError:
            raise self._refused(repr(text)) from None

    def check(self, value: Any) -> Any:
        """The value that a TOML file says, which has types of its own. Raises ConfigError."""
        if self.repeated:
            if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
                raise self._refused(_toml_text(value))
            return tuple(value)
        if self.value_type is float and type(value) is int:
            return float(value)
        if issubclass(self.value_type, str) and isinstance(value, str):
            return self._checked(value)
        if type(value) is not self.value_type:  # a TOML boolean is no number, though Python's is one
            raise self._refused(_toml_text(value))
        return value

    def arguments(self, value: Any) -> list[str]:
        """The command line that says this value; empty for the default."""
        if value == self.default or value is None:
            return []
        if self.repeated:
            return [part for item in value for part in (self.flag, item)]
        return [self.flag, str(value)]

    def _checked(self, text: str) -> Any:
        if self.choices and text not in self.choices:
            raise self._refused(repr(text))
        return self.value_type(text)

    def _parse_bool(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in TRUE_WORDS + FALSE_WORDS:
            raise self._refused(repr(text))
        return word in TRUE_WORDS

    def _refused(self, given: str) -> ConfigError:
        return ConfigError(self.name, f"must be {self._accepted()}, is {given}")

    def _accepted(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.repeated:
            return "a list of strings"
        return {int: "a whole number", float: "a number", bool: "true or false"}.get(self.value_type, "a string")


def settings_of(config_type: type) -> tuple[Setting, ...]:
    """The settings of a config and of the configs in it, its own first. Fields without help are not settings."""
    own: list[Setting] = []
    nested: list[Setting] = []
    for field, hint in _fields(config_type):
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            nested.extend(settings_of(hint))
        elif "help" in field.metadata:
            own.append(_setting(config_type, field, hint))
    return (*own, *nested)


def nested_configs(config_type: type) -> dict[str, type]:
    """The configs that a config is composed of, by field name."""
    return {
        field.name: hint
        for field, hint in _fields(config_type)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint)
    }


def _fields(config_type: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(config_type)
    return ((field, hints[field.name]) for field in dataclasses.fields(config_type))


def _setting(config_type: type, field: dataclasses.Field[Any], hint: Any) -> Setting:
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    if optional:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    repeated = typing.get_origin(hint) is tuple
    value_type = typing.get_args(hint)[0] if repeated else hint
    choices = tuple(value_type) if issubclass(value_type, StrEnum) else ()
    return Setting(
        name=field.name,
        section=config_type.__name__.removesuffix("Config"),
        value_type=value_type,
        default=field.default,
        help=field.metadata["help"],
        optional=optional,
        repeated=repeated,
        choices=tuple(str(choice) for choice in field.metadata.get("choices", choices)),
    )


def _toml_text(value: Any) -> str:
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return repr(value)
