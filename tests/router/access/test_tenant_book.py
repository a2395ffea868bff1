"""Keys come and go without a restart, and a broken file costs nothing that was known."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from common.errors import ConfigError
from router.access.api_key import hash_key
from router.access.tenant_book import TenantBook

TIMEOUT_S = 10.0


def write(path: Path, *keys: str) -> None:
    """In one step, as editors and Kubernetes do."""
    text = "".join(f'[tenants.{key}]\nkeys = ["{hash_key(key)}"]\n' for key in keys)
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


@asynccontextmanager
async def watched(path: Path) -> AsyncIterator[TenantBook]:
    book = TenantBook(path)
    task = asyncio.create_task(book.watch())
    try:
        yield book
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await asyncio.sleep(0.05)


async def test_a_change_holds_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    write(path, "a")
    async with watched(path) as book:
        assert book.find("a") is not None and book.find("b") is None
        write(path, "b")
        await until(lambda: book.find("b") is not None)
        assert book.find("a") is None


@pytest.mark.parametrize("broken", ["no TOML", None, ""], ids=["not valid", "away", "empty"])
async def test_a_broken_file_leaves_things_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    path = tmp_path / "tenants.toml"
    write(path, "a")
    async with watched(path) as book:
        if broken is None:
            path.unlink()
        else:
            path.write_text(broken)
        await until(lambda: any(record.levelno == logging.ERROR for record in caplog.records))
        assert book.find("a") is not None
        write(path, "b")
        await until(lambda: book.find("b") is not None)


def test_a_broken_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        TenantBook(tmp_path / "tenants.toml")
