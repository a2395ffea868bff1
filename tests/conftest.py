"""What tests of several folders share: the demo model, and a tiny one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The folder of the converted demo model; made on first use."""
    from common.checkpoint import resolve_model

    return Path(resolve_model("demo"))


@pytest.fixture(scope="session")
def tiny_model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small random-weight model with the demo model's tokenizer and chat template."""
    from tests.support.tiny_model import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama", demo_model)
