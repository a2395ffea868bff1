from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slipstream.generated_text import GeneratedText

FRUITS = GeneratedText(name="fruits", make=lambda: "apple\n")


def test_a_document_keeps_what_is_around_the_text() -> None:
    document = FRUITS.put_into(f"before\n{FRUITS.begin}stale\n{FRUITS.end}after\n")
    assert document == f"before\n{FRUITS.begin}\napple\n\n{FRUITS.end}after\n"
    assert FRUITS.put_into(document) == document


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="fruits: generated"):
        FRUITS.put_into("text")


def test_a_stale_document_fails_the_check_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fruits.md"
    path.write_text(f"{FRUITS.begin}pear\n{FRUITS.end}")
    codes = []
    for option in ("--check", "--write", "--check"):
        monkeypatch.setattr(sys, "argv", ["fruits", option, str(path)])
        codes.append(FRUITS.run())
    assert codes == [1, 0, 0]
    assert capsys.readouterr().err == f"{path} does not have the fruits of the code: run `make docs`\n"
