"""The table of all settings for the documentation: `python -m slipstream.settings_table [--write FILE|--check FILE]`.

Generated from the config dataclasses, so that flags, variables, keys and documentation are one text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from slipstream.generated_text import GeneratedText
from slipstream.setting import Setting
from slipstream.settings import COMMAND_CONFIGS, command_settings


def settings_table() -> str:
    """One Markdown table per section, each setting once, with the commands that have it."""
    sections: dict[str, dict[str, tuple[Setting, list[str]]]] = {}
    for command in COMMAND_CONFIGS:
        for one in command_settings(command):
            _, commands = sections.setdefault(one.section, {}).setdefault(one.name, (one, []))
            commands.append(command)
    return "\n".join("".join(_section(title, entries)) for title, entries in sections.items())


def _section(title: str, entries: dict[str, tuple[Setting, list[str]]]) -> Iterator[str]:
    yield f"### {title}\n\n"
    yield "| flag | variable | TOML key | default | meaning | commands |\n"
    yield "|---|---|---|---|---|---|\n"
    for one, commands in entries.values():
        default = f"`{one.default_text}`" if one.default_text else ""
        values = " (" + ", ".join(f"`{choice}`" for choice in one.choices) + ")" if one.choices else ""
        meaning = one.help.replace("|", "\\|") + values
        yield (f"| `{one.flag}` | `{one.variable}` | `{one.name}` | {default} | {meaning} | {', '.join(commands)} |\n")


SETTINGS_TABLE = GeneratedText(name="settings", make=settings_table)

if __name__ == "__main__":
    sys.exit(SETTINGS_TABLE.run())
