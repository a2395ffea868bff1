from __future__ import annotations

import pytest

from slipstream.settings import COMMAND_CONFIGS, command_settings
from slipstream.settings_table import BEGIN, END, settings_table, with_table


def test_every_setting_is_in_the_table() -> None:
    table = settings_table()
    for command in COMMAND_CONFIGS:
        for one in command_settings(command):
            assert f"| `{one.flag}` | `{one.variable}` | `{one.name}` |" in table


def test_a_document_keeps_what_is_around_the_table() -> None:
    document = with_table(f"before\n{BEGIN}stale\n{END}after\n")
    assert document.startswith("before\n")
    assert document.endswith("after\n")
    assert "stale" not in document
    assert with_table(document) == document


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):
        with_table("text")
