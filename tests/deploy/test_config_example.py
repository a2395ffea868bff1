"""deploy/config.example.toml is taken as it is, by every command that it has settings for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from slipstream.settings import command_settings
from tests.support.command_config import config_of, flat

EXAMPLE = Path(__file__).parents[2] / "deploy" / "config.example.toml"
# What the file's head says that a flag has to give.
FLAGS = {"prefill": ("--advertise", "10.0.0.2:7001"), "decode": ("--advertise", "10.0.0.3:7001")}
COMMANDS = ("router", "prefill", "decode")


@pytest.fixture
def all_of_it(tmp_path: Path) -> Path:
    """The example with the settings that it only shows."""
    path = tmp_path / "config.toml"
    text, num_shown = re.subn(r"^# (?=\w+ = )", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert num_shown >= 2
    path.write_text(text, encoding="utf-8")
    return path


def check(path: Path, command: str) -> None:
    """Every value of the file that is the command's is in its config."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    names = {one.name for one in command_settings(command)}
    said = {key: value for key, value in document.items() if key in names} | document[command]
    config = flat(config_of([command, "--config", str(path), *FLAGS.get(command, ())]))
    assert said.items() <= config.items()


def test_it_has_settings_for_each_role_and_no_other_command() -> None:
    document = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    assert tuple(key for key, value in document.items() if isinstance(value, dict)) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_taken(command: str) -> None:
    check(EXAMPLE, command)


@pytest.mark.parametrize("command", COMMANDS)
def test_so_are_the_settings_that_it_only_shows(command: str, all_of_it: Path) -> None:
    check(all_of_it, command)
