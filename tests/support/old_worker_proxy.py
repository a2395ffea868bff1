"""Makes a worker of today look, on the wire, like one of protocol version 1.

Every message passes through a frozen copy of version 1's messages (tests/data/protocol_v1.binpb) and loses what they
don't have; calls that version 1 did not have are unknown; a peer that says another version is refused, as it was then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor

from common.net.server import GrpcServer, open_channel

FROZEN = Path(__file__).parent.parent / "data" / "protocol_v1.binpb"
VERSION = 1


class _FrozenProtocol:
    """Version 1's services and messages, apart from today's."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(FROZEN.read_bytes())
        for file in files.file:
            self._pool.Add(file)
        self._services = [name for file in files.file for name in self._names(file)]

    def method(self, path: str) -> MethodDescriptor | None:
        """Of `/package.Service/Method`; None when version 1 did not have it."""
        service, _, name = path.removeprefix("/").partition("/")
        if service not in self._services:
            return None
        found: MethodDescriptor | None = self._pool.FindServiceByName(service).methods_by_name.get(name)
        return found

    def pass_through(self, descriptor: Any, data: bytes) -> Any:
        """A message as version 1 understands it."""
        message = message_factory.GetMessageClass(descriptor).FromString(data)
        message.DiscardUnknownFields()
        return message

    @staticmethod
    def _names(file: descriptor_pb2.FileDescriptorProto) -> list[str]:
        return [f"{file.package}.{service.name}" for service in file.service]


class _Proxy(grpc.GenericRpcHandler):
    """Passes every call on to one worker."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._frozen = _FrozenProtocol()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = self._frozen.method(details.method)
        if method is None:
            return None  # UNIMPLEMENTED

        async def serve(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            call = self._channel.stream_stream(details.method)()

            async def send() -> None:
                async for data in requests:
                    await call.write(self._outgoing(method, data))
                await call.done_writing()

            sending = asyncio.create_task(send())
            try:
                async for data in call:
                    yield self._incoming(method, data)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", error.trailing_metadata() or ())
            finally:
                sending.cancel()
                call.cancel()

        return grpc.stream_stream_rpc_method_handler(serve)

    def _outgoing(self, method: MethodDescriptor, data: bytes) -> bytes:
        message = self._frozen.pass_through(method.input_type, data)
        if method.input_type.name == "AttachRequest" and message.HasField("hello"):
            assert message.hello.protocol_version == VERSION, "version 1 refuses any other"
        return bytes(message.SerializeToString())

    def _incoming(self, method: MethodDescriptor, data: bytes) -> bytes:
        message = self._frozen.pass_through(method.output_type, data)
        if method.output_type.name == "WorkerRegistration":
            message.protocol_version = VERSION
        if method.output_type.name == "AttachResponse" and message.HasField("hello"):
            message.hello.protocol_version = VERSION
        return bytes(message.SerializeToString())


@asynccontextmanager
async def old_worker_proxy(port: int, choose_worker: Callable[[], str]) -> AsyncIterator[None]:
    """Serves on a port of this machine; `choose_worker` tells host:port of the worker behind it."""
    server = GrpcServer()
    server.bind("127.0.0.1", port)
    async with open_channel(choose_worker()) as channel:
        server.server.add_generic_rpc_handlers((_Proxy(channel),))
        await server.start([])
        try:
            yield
        finally:
            await server.stop(0)
