"""Callers that begin a request and go away, each in its own way."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from benchmarks.client_gone.stage import request
from protos import inference_pb2_grpc
from slipstream.launcher import Cluster

MAX_TOKENS = 1000
# What a killed caller runs: it reads its answer until it is gone.
PROGRAM = """
import json, sys
import slipstream
target, prompt, max_tokens = json.loads(sys.argv[1])
with slipstream.Client(target) as client:
    print("begins", flush=True)
    for delta in client.stream(prompt, max_tokens=max_tokens, ignore_eos=True):
        pass
"""


class Caller(Protocol):
    def leave(self) -> None:
        """Goes away in mid-request."""
        ...


class GrpcCancel:
    """Cancels its call, and stays connected."""

    def __init__(self, cluster: Cluster, prompt: list[int]) -> None:
        self._channel = grpc.insecure_channel(cluster.grpc_addresses[0])
        stub = inference_pb2_grpc.InferenceStub(self._channel)
        self._call: Any = stub.Generate(request(prompt, max_tokens=MAX_TOKENS))

    def leave(self) -> None:
        self._call.cancel()
        self._channel.close()


class GrpcKilled:
    """A process of its own, ended by SIGKILL."""

    def __init__(self, cluster: Cluster, prompt: list[int]) -> None:
        arguments = json.dumps([cluster.grpc_addresses[0], prompt, MAX_TOKENS])
        self._process = subprocess.Popen([sys.executable, "-c", PROGRAM, arguments], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def leave(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


class HttpClosed:
    """Closes its connection, before or after the first byte of the answer."""

    def __init__(self, cluster: Cluster, prompt: list[int]) -> None:
        address = urllib.parse.urlsplit(cluster.http_urls[0])
        body = json.dumps({"prompt": prompt, "max_tokens": MAX_TOKENS, "ignore_eos": True, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        self._socket = socket.create_connection((address.hostname, address.port))
        self._socket.sendall(head + body)

    def leave(self) -> None:
        self._socket.close()


WAYS: dict[str, Callable[[Cluster, list[int]], Caller]] = {
    "gRPC cancel": GrpcCancel,
    "gRPC caller killed": GrpcKilled,
    "HTTP connection closed": HttpClosed,
}
