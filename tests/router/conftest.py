"""What the router's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.conducting import Scene, conducting_scene


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with conducting_scene(tmp_path) as scene:
        yield scene
