from __future__ import annotations

import socket
import time

import pytest

from common.errors import ConfigError
from common.index.reachability import check_index
from common.index.server import EmbeddedIndexServer


def test_a_server_that_answers_passes(index_server: EmbeddedIndexServer) -> None:
    check_index(index_server.url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://:secret@127.0.0.1:1", r"redis://:\*\*\*@127.0.0.1:1: connection refused"),
        ("redis+cluster://127.0.0.1:1", "connection refused"),
        ("unix:///absent.sock", "No such file or directory"),
    ],
)
def test_a_server_that_is_not_there_is_named_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^index_url: no index server answers at .*{reason}$"):
        check_index(url)


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        began_s = time.monotonic()
        with pytest.raises(ConfigError, match="no answer"):
            check_index(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.3)
    assert time.monotonic() - began_s < 2.0


async def test_it_may_be_asked_beside_an_event_loop(index_server: EmbeddedIndexServer) -> None:
    check_index(index_server.url)
