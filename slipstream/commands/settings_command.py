"""A click command whose flags are the settings of its config, in sections, beside options of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from slipstream.setting import Setting
from slipstream.settings import CONFIG_VARIABLE, Sources, command_settings, resolve, unknown_variables

ConfigT = TypeVar("ConfigT")

EPILOG = (
    "Each setting can also be an environment variable (--max-model-len: SLIPSTREAM_MAX_MODEL_LEN) or a key of a TOML "
    "file (max_model_len). Flags win over the environment, the environment over the file. See docs/configuration.md."
)


class SettingsCommand(click.Command):
    """Writes its options in sections: its own first, then those of each config."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        own = [
            option
            for option in self.get_params(context)
            if isinstance(option, click.Option) and not isinstance(option, SettingOption)
        ]
        settings = [option for option in self.get_params(context) if isinstance(option, SettingOption)]
        self._section("Options", own, context, formatter)
        for section, options in itertools.groupby(settings, key=lambda option: option.section):
            self._section(section, list(options), context, formatter)

    @staticmethod
    def _section(
        title: str, options: Sequence[click.Option], context: click.Context, formatter: click.HelpFormatter
    ) -> None:
        records = [record for option in options if (record := option.get_help_record(context)) is not None]
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class SettingOption(click.Option):
    """A flag that hands on its text as it was typed: `slipstream.setting` alone judges it."""

    def __init__(self, one: Setting) -> None:
        default = f" [default: {one.default_text}]" if one.default_text else ""
        super().__init__(
            [one.flag, one.name],
            type=click.STRING,
            default=None,
            multiple=one.repeated,
            metavar=one.metavar,
            help=f"{one.help}{default}",
        )
        self.section = f"{one.section} settings"


def settings_command(name: str, *, short_help: str) -> Callable[[Callable[..., Any]], SettingsCommand]:
    """A decorator: the function's docstring is the help, its own click options come first.

    The function gets `Sources` for `read_settings`, and the values of its own options.
    """

    def decorate(function: Callable[..., Any]) -> SettingsCommand:
        def call(**values: Any) -> Any:
            names = {"config", *(one.name for one in command_settings(name))}
            own = {key: value for key, value in values.items() if key not in names}
            return function(sources_of(name, values, os.environ), **own)

        own_options: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
        config_option = click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help=f"TOML file with settings [env: {CONFIG_VARIABLE}]",
        )
        options: list[click.Parameter] = [SettingOption(one) for one in command_settings(name)]
        return SettingsCommand(
            name,
            params=[*own_options, config_option, *options],
            callback=call,
            help=function.__doc__,
            short_help=short_help,
            epilog=EPILOG,
        )

    return decorate


def sources_of(command: str, values: Mapping[str, Any], environment: Mapping[str, str]) -> Sources:
    """What a command was given, from the values of its options."""
    names = {one.name for one in command_settings(command)}
    flags = {key: value for key, value in values.items() if key in names and value not in (None, ())}
    return Sources(command=command, flags=flags, environment=environment, config_file=values.get("config"))


def read_settings(config_type: type[ConfigT], sources: Sources, fixed: Mapping[str, Any] | None = None) -> ConfigT:
    """The command's config. Warns of variables that look like mistyped settings. Raises ConfigError."""
    for line in unknown_variables(sources.environment):
        click.echo(f"warning: {line}", err=True)
    return resolve(config_type, sources, fixed)
