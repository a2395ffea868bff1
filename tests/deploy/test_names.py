"""Flags and variables that the files of deploy/ name are those of the commands."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.command_config import config_of
from tests.support.deployed import DEPLOY, KNOWN_FLAGS, KNOWN_VARIABLES, flags_in, text_of, variables_in

FILES = sorted(path.name for path in DEPLOY.iterdir())
# What the texts name of other programs, beside what they write into commands of these.
DOCKER_FLAGS = {"--cpus", "--ipc"}


def test_every_file_is_in_the_list() -> None:
    listed = set(re.findall(r"\]\(([\w.-]+)\) \|", text_of("README.md")))
    assert listed | {"README.md", "Dockerfile.dockerignore"} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_variables_are_settings(name: str) -> None:
    assert variables_in(text_of(name)) <= KNOWN_VARIABLES


@pytest.mark.parametrize("name", ["config.example.toml", "prometheus-rules.yaml", "grafana-dashboard.json"])
def test_flags_are_the_commands_own(name: str) -> None:
    assert flags_in(text_of(name)) <= KNOWN_FLAGS


def test_flags_that_the_text_names_are_too() -> None:
    prose = re.sub(r"^```.*?^```", "", text_of("README.md"), flags=re.MULTILINE | re.DOTALL)
    assert len(flags_in(prose)) >= 4
    assert flags_in(prose) <= KNOWN_FLAGS | DOCKER_FLAGS


def test_commands_in_containers_are_taken() -> None:
    lines = re.findall(r"^docker run .* slipstream (.*)$", text_of("README.md"), flags=re.MULTILINE)
    assert len(lines) >= 2
    for line in lines:
        config_of(shlex.split(line))
