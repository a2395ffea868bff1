from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.scripted_router import ScriptedRouter


@pytest.fixture
def router() -> Iterator[ScriptedRouter]:
    scripted = ScriptedRouter()
    yield scripted
    scripted.stop()


@pytest.fixture
def second_router() -> Iterator[ScriptedRouter]:
    scripted = ScriptedRouter()
    yield scripted
    scripted.stop()
