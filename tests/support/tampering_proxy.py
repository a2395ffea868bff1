"""A gRPC proxy that stands before a worker and flips one bit of the KV blocks that pass, when told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import grpc

from common.transport.frame import decode_frame

MAX_MESSAGE_BYTES = 64 * 2**20
MAX_TIMEOUT_S = 1e6
OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
]
PUSH, COMMIT = "/slipstream.v1.KvTransfer/Push", "/slipstream.v1.KvTransfer/Commit"


class TamperingProxy(grpc.GenericRpcHandler):
    """Forwards every call to `target` as it is: on the wire a unary call is a stream of one message.

    `num_to_tamper` Push frames to come are changed. `commit_codes` holds how each Commit ended.
    """

    def __init__(self, target: str) -> None:
        self.num_to_tamper = 0
        self.commit_codes: list[grpc.StatusCode] = []
        self._lock = threading.Lock()
        self._channel = grpc.insecure_channel(target, OPTIONS)
        self._server = grpc.server(ThreadPoolExecutor(max_workers=32), handlers=[self], options=OPTIONS)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> TamperingProxy:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.stop(grace=0).wait()
        self._channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        def forward(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._forward(method, requests, context)

        return grpc.stream_stream_rpc_method_handler(forward)

    def _forward(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        passing = map(self._tamper, requests) if method == PUSH else requests
        open_call: Any = self._channel.stream_stream(method)
        remaining_s = context.time_remaining()  # centuries when the caller sets no deadline
        call = open_call(passing, timeout=None if remaining_s is None or remaining_s > MAX_TIMEOUT_S else remaining_s)
        if not context.add_callback(call.cancel):
            call.cancel()
        try:
            yield from call
        except grpc.RpcError:
            context.set_trailing_metadata(tuple(call.trailing_metadata() or ()))
            context.abort(call.code(), call.details() or "")
        finally:
            if method == COMMIT:
                self.commit_codes.append(call.code())

    def _tamper(self, frame: bytes) -> bytes:
        with self._lock:
            if self.num_to_tamper == 0:
                return frame
            self.num_to_tamper -= 1
        _, payload = decode_frame(frame)
        changed = bytearray(frame)
        changed[len(frame) - len(payload) // 2] ^= 0x01
        return bytes(changed)
