"""Asks once whether the index server answers, for who wants to know before it starts anything."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from common.address import without_password
from common.errors import ConfigError
from common.index.client import IndexClient, IndexUnavailableError

TIMEOUT_S = 2.0


def check_index(url: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Blocks for `timeout_s` seconds at most. Raises ConfigError that names the address and what is wrong."""
    # A thread of its own: the caller's may have an event loop.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="index-check") as thread:
        reason = thread.submit(asyncio.run, _reason_against(url, timeout_s)).result()
    if reason is not None:
        raise ConfigError("index_url", f"no index server answers at {without_password(url)}: {reason}")


async def _reason_against(url: str, timeout_s: float) -> str | None:
    client = IndexClient.from_url(url, timeout_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            await client.ping()
    except IndexUnavailableError as error:
        return str(error)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    finally:
        await client.close()
    return None
