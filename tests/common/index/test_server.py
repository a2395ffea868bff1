from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from redis import Redis

from common.errors import UnavailableError
from common.index.server import MIB, EmbeddedIndexConfig, EmbeddedIndexServer
from tests.support.valkey import running_server

# Starts the server from a thread that ends at once: the server must outlive the thread, not the process.
STARTER = """
import threading, time
from common.index.server import EmbeddedIndexServer
server = EmbeddedIndexServer()
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
time.sleep(0.2)
assert server.is_alive()
print(server.pid, server.url.rsplit(":", 1)[1], flush=True)
time.sleep(60)
"""


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def test_two_servers_live_side_by_side() -> None:
    with running_server() as first, running_server() as second:
        assert first.url != second.url
        for server in (first, second):
            with Redis.from_url(server.url) as client:
                assert client.info("server")["process_id"] == server.pid


def test_server_is_limited_and_keeps_nothing() -> None:
    with (
        EmbeddedIndexServer(EmbeddedIndexConfig(max_memory_bytes=64 * MIB)) as server,
        Redis.from_url(server.url) as client,
    ):
        config = client.config_get("maxmemory*") | client.config_get("save") | client.config_get("bind")
        assert config["maxmemory"] == str(64 * MIB)
        assert config["maxmemory-policy"] == "noeviction"
        assert (config["save"], config["bind"]) == ("", "127.0.0.1")


def test_stop_ends_the_process_and_can_be_repeated() -> None:
    server = EmbeddedIndexServer()
    server.start()
    pid, port = server.pid, int(server.url.rsplit(":", 1)[1])
    server.stop()
    server.stop()
    assert not answers(port)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_taken_port_is_an_error_that_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = EmbeddedIndexServer(EmbeddedIndexConfig(port=taken.getsockname()[1], start_timeout_s=5.0))
        with pytest.raises(UnavailableError, match="already in use"):
            server.start()


def test_many_servers_started_at_once_have_their_own_ports() -> None:
    servers = [EmbeddedIndexServer() for _ in range(4)]
    threads = [threading.Thread(target=server.start) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert len({server.url for server in servers}) == 4
        assert all(server.is_alive() for server in servers)
    finally:
        for server in servers:
            server.stop()


def test_server_dies_with_its_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        _, port = map(int, parent.stdout.readline().split())
        assert answers(port)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    deadline = time.monotonic() + 5
    while answers(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not answers(port)
