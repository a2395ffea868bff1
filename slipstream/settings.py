"""Where a process's settings come from: flags, then environment, then a TOML file, then the config's defaults.

A key at the top of the file holds for every command that has the setting; a key in a table named after a command
(`[router]`, `[decode]`, …) holds for that command alone, and wins. Owns the order and the error messages; each
message names the setting, where its value came from, and what it may be.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from common.config import EngineConfig, RouterConfig, WorkerConfig, check_host_port, setting
from common.errors import ConfigError
from slipstream.cluster_config import ClusterConfig
from slipstream.setting import VARIABLE_PREFIX, Setting, nested_configs, settings_of

CONFIG_VARIABLE = VARIABLE_PREFIX + "CONFIG"

ConfigT = TypeVar("ConfigT")

CALLER_TLS_HELP = (
    "folder with the fleet's ca.crt, and with tls.crt and tls.key where routers ask for certificates, or one that "
    "`slipstream certs` made; default: no TLS"
)
API_KEY_HELP = "API key, where routers ask for one; better a variable, since others may read command lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a command reaches a router."""

    target: tuple[str, ...] = setting(("127.0.0.1:50051",), "host:port of a router's gRPC API; repeatable")
    timeout_s: float = setting(600.0, "seconds that one answer may take")
    tls_dir: str | None = setting(None, CALLER_TLS_HELP)
    api_key: str | None = setting(None, API_KEY_HELP)

    def __post_init__(self) -> None:
        for address in self.target:
            check_host_port("target", address)
        if not self.target:
            raise ConfigError("target", "must be at least one host:port")
        if self.timeout_s <= 0:
            raise ConfigError("timeout_s", f"must be above 0, is {self.timeout_s:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateConfig:
    """`slipstream generate`: a router to ask, or the engine of a cluster that it starts itself."""

    client: ClientConfig = field(default_factory=ClientConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


COMMAND_CONFIGS: Mapping[str, type] = {
    "up": ClusterConfig,
    "router": RouterConfig,
    "prefill": WorkerConfig,
    "decode": WorkerConfig,
    "generate": GenerateConfig,
    "status": ClientConfig,
    "explain": ClientConfig,
    "drain": ClientConfig,
    "profile": EngineConfig,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What one start of a command was given. `flags` holds only those that were there, as typed."""

    command: str
    flags: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    config_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A value and where it came from."""

    value: Any
    origin: str


def resolve(config_type: type[ConfigT], sources: Sources, fixed: Mapping[str, Any] | None = None) -> ConfigT:
    """The config of a command. `fixed` fields come from the command itself and can't be set.

    Raises ConfigError.
    """
    given = _from_file(sources)
    for one in command_settings(sources.command):
        text = sources.environment.get(one.variable, "")
        if text:  # an empty variable is an absent one, as shells and manifests use them
            given[one.name] = _parsed(one, text, f"environment variable {one.variable}")
        if one.name in sources.flags:
            given[one.name] = _from_flag(one, sources.flags[one.name])
    values = {name: entry.value for name, entry in given.items()} | dict(fixed or {})
    try:
        return _build(config_type, values)
    except ConfigError as error:
        if error.field in given:
            raise _with_origin(error, given[error.field].origin) from None
        absent = any(one.name == error.field and one.default is None for one in command_settings(sources.command))
        raise (error if absent else _with_origin(error, "its default")) from None


def command_settings(command: str) -> tuple[Setting, ...]:
    """The settings that a command has. A prefill worker's role is given by its name."""
    settings = settings_of(COMMAND_CONFIGS[command])
    return tuple(one for one in settings if not (command == "prefill" and one.name == "role"))


def command_line(command: str, config: Any, *, leave_out: Container[str] = ()) -> list[str]:
    """A command and the flags that say what differs from the defaults in a config, but for settings to leave out."""
    values = _flattened(config)
    settings = [one for one in command_settings(command) if one.name not in leave_out]
    return [command, *(part for one in settings for part in one.arguments(values[one.name]))]


def setting_variables() -> set[str]:
    """The names of all environment variables that are settings of some command."""
    return {one.variable for command in COMMAND_CONFIGS for one in command_settings(command)}


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A line for each variable that looks like a mistyped setting.

    Only near misses: a container platform puts variables of its own under the names of services.
    """
    known = setting_variables() | {CONFIG_VARIABLE}
    lines: list[str] = []
    for name in sorted(environment):
        if name.startswith(VARIABLE_PREFIX) and name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.85)
            lines.extend(f"environment variable {name} is no setting; did you mean {match}?" for match in close)
    return lines


def _from_file(sources: Sources) -> dict[str, _Given]:
    path = sources.config_file
    if path is None and sources.environment.get(CONFIG_VARIABLE):
        path = Path(sources.environment[CONFIG_VARIABLE])
    if path is None:
        return {}
    document = _read_toml(path)
    shared = {key: value for key, value in document.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in document.items() if isinstance(value, dict)}
    _check_keys(path, shared, {one.name for command in COMMAND_CONFIGS for one in command_settings(command)}, "")
    for table, entries in tables.items():
        if table not in COMMAND_CONFIGS:
            raise ConfigError(table, f"is no table of {path}{_hint(table, COMMAND_CONFIGS)}")
        _check_keys(path, entries, {one.name for one in command_settings(table)}, f"[{table}] ")
    return _checked_entries(path, sources.command, shared, tables.get(sources.command, {}))


def _checked_entries(path: Path, command: str, shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, _Given]:
    given = {}
    for one in command_settings(command):
        if one.name not in shared and one.name not in own:
            continue
        place = f"[{command}] in file {path}" if one.name in own else f"file {path}"
        try:
            value = one.check(own.get(one.name, shared.get(one.name)))
        except ConfigError as error:
            raise _with_origin(error, place) from None
        given[one.name] = _Given(value=value, origin=place)
    return given


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("config", f"{path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("config", f"{path} is not valid TOML: {error}") from None


def _check_keys(path: Path, entries: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    names = sorted(known)
    for key in entries:
        if key not in names:
            raise ConfigError(key, f"is no setting ({place}in file {path}){_hint(key, names)}")


def _hint(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key.replace("-", "_"), list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def _from_flag(one: Setting, given: str | tuple[str, ...]) -> _Given:
    text = given if isinstance(given, str) else ",".join(given)
    return _parsed(one, text, f"flag {one.flag}")


def _parsed(one: Setting, text: str, origin: str) -> _Given:
    try:
        return _Given(value=one.parse(text), origin=origin)
    except ConfigError as error:
        raise _with_origin(error, origin) from None


def _with_origin(error: ConfigError, origin: str) -> ConfigError:
    message = str(error).removeprefix(f"{error.field}: ")
    return ConfigError(error.field, f"{message} (from {origin})")


def _build(config_type: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    arguments: dict[str, Any] = {name: _build(nested, values) for name, nested in nested_configs(config_type).items()}
    assert dataclasses.is_dataclass(config_type)
    for one in dataclasses.fields(config_type):
        if one.name in values and one.name not in arguments:
            arguments[one.name] = values[one.name]
    return config_type(**arguments)


def _flattened(config: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        if dataclasses.is_dataclass(value):
            values |= _flattened(value)
        else:
            values[one.name] = value
    return values
