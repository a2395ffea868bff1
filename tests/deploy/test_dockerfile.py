"""deploy/Dockerfile copies what a wheel is built of, and starts the command as nobody in particular."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from tests.support.deployed import ROOT, text_of


def instructions() -> list[tuple[str, str]]:
    """Each with its arguments, lines joined and comments left out."""
    lines = [line for line in text_of("Dockerfile").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for one in instructions():
        if one[0] == "FROM":
            found.append([])
        found[-1].append(one)
    return found


def copied() -> set[str]:
    """What comes from the build's folder."""
    arguments = [rest.split() for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    return {source for one in arguments for source in one[:-1]}


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_instruction_is_one() -> None:
    words = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in instructions()} <= words


def test_it_copies_every_package_and_what_building_one_takes() -> None:
    packages = {pattern.rstrip("*") for pattern in project()["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert copied() == packages | {"pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints-cpu.txt"}
    assert all((ROOT / name).exists() for name in copied())


def test_what_it_copies_is_what_the_build_is_given() -> None:
    lines = [line for line in text_of("Dockerfile.dockerignore").splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied()


def test_it_installs_the_wheel_with_the_pinned_versions() -> None:
    (pip,) = (rest for word, rest in stages()[-1] if word == "RUN" and "pip install" in rest)
    assert re.search(r"--constraint \S*/constraints-cpu\.txt\b.*\.whl\b", pip)


def test_its_python_is_one_that_the_package_takes() -> None:
    images = {rest.split()[0] for word, rest in instructions() if word == "FROM"}
    assert images == {"python:3.11-slim"}
    assert project()["project"]["requires-python"] == ">=3.11"


def test_it_runs_the_command_and_not_as_root() -> None:
    last = dict(stages()[-1])
    assert last["ENTRYPOINT"] == '["slipstream"]'
    assert "slipstream" in project()["project"]["scripts"]
    assert int(last["USER"]) > 0
    assert f"--uid {last['USER']} " in text_of("Dockerfile")
