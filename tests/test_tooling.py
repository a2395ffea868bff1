"""What runs the checks: one set of make targets, whoever calls them."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
TARGETS = {"make check", "make test"}


def load_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_ci_pre_commit_and_the_workflow_call_the_same_targets() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert set(re.findall(r"^make \w+$", script, re.MULTILINE)) == TARGETS
    (repository,) = load_yaml(".pre-commit-config.yaml")["repos"]
    assert {hook["entry"] for hook in repository["hooks"]} == TARGETS
    steps = load_yaml(".github/workflows/ci.yml")["jobs"]["check-and-test"]["steps"]
    assert {step["run"] for step in steps if "run" in step} == TARGETS | {"make install"}


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (declared,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(f"make {target} " in listed for target in declared.split())


def test_every_dependency_is_pinned_exactly_within_its_range() -> None:
    lines = (ROOT / "constraints-cpu.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"] + project["optional-dependencies"]["dev"]:
        (name,) = re.findall(r"^[\w-]+", requirement)
        assert name.lower() in names, f"{name} is not pinned: run `make constraints`"
    assert pins["torch"] == "2.13.0"
