from __future__ import annotations

import re
from pathlib import Path

from slipstream.settings import COMMAND_CONFIGS, command_settings
from slipstream.settings_table import SETTINGS_TABLE, settings_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_every_setting_is_in_the_table() -> None:
    table = settings_table()
    for command in COMMAND_CONFIGS:
        for one in command_settings(command):
            assert f"| `{one.flag}` | `{one.variable}` | `{one.name}` |" in table


def test_the_documentation_has_the_settings_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert SETTINGS_TABLE.put_into(text) == text, "run `make docs`"


def test_the_documentation_lists_the_tables_of_a_file() -> None:
    before, _, _ = DOCUMENT.read_text(encoding="utf-8").partition("## Settings")
    assert re.findall(r"`\[(\w+)\]`", before) == list(COMMAND_CONFIGS)
