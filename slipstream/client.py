"""The blocking Python client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Unpack

import grpc

from common.errors import NotFoundError, SlipstreamError
from protos import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc
from router.generation import ModelCard
from slipstream import codec
from slipstream.connection import (
    CHANNEL_OPTIONS,
    CONTROL_TIMEOUT_S,
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT_S,
    Targets,
    call_timeout_s,
    error_of,
    is_unavailable,
    none_answers,
)
from slipstream.explanation import Explanation, decode_explanation
from slipstream.fleet_status import FleetStatus, IntegrityReport
from slipstream.generation import GenerateOptions, Generation, GenerationBuilder, GenerationDelta


class Client:
    """Calls one router or several. Several are used by turns; one that does not answer is passed over.

    Safe to use from many threads. Each call ends in an answer or in one of `common.errors`' classes.

        with Client("127.0.0.1:50051") as client:
            print(client.generate("The capital of France is", max_tokens=16).text)
            for delta in client.stream(messages=[{"role": "user", "content": "Hello"}]):
                print(delta.text, end="")
    """

    def __init__(self, target: str | Sequence[str] = DEFAULT_TARGET, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """`target` is host:port of a router's gRPC API, `timeout_s` the seconds that one call may take.

        Raises ValueError when a target is not host:port.
        """
        self._targets = Targets(target)
        self._timeout_s = timeout_s
        self._channels = [grpc.insecure_channel(address, CHANNEL_OPTIONS) for address in self._targets.addresses]
        self._inference = [inference_pb2_grpc.InferenceStub(channel) for channel in self._channels]
        self._admin = [admin_pb2_grpc.AdminStub(channel) for channel in self._channels]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections and every call on them. Idempotent."""
        for channel in self._channels:
            channel.close()

    def generate(self, prompt: str | Sequence[int] | None = None, **options: Unpack[GenerateOptions]) -> Generation:
        """The whole answer to a text, to token ids, or to `messages`."""
        builder = GenerationBuilder()
        for delta in self.stream(prompt, **options):
            builder.add(delta)
        return builder.build()

    def stream(
        self, prompt: str | Sequence[int] | None = None, **options: Unpack[GenerateOptions]
    ) -> Iterator[GenerationDelta]:
        """The answer as it grows. Closing the iterator cancels the request and frees all that it holds."""
        request = codec.encode_request(prompt, options)
        return self._stream(request, call_timeout_s(self._timeout_s, options.get("deadline_ms")))

    def models(self) -> tuple[ModelCard, ...]:
        """The models that are served."""
        return codec.decode_models(
            self._call(lambda index: self._inference[index].ListModels, inference_pb2.ListModelsRequest())
        )

    def status(self) -> FleetStatus:
        """The fleet as a router sees it."""
        return codec.decode_status(self._call(lambda index: self._admin[index].Status, admin_pb2.StatusRequest()))

    def explain(self, request_id: str = "") -> Explanation:
        """Why a request went where it went; without an id, the last one. Raises NotFoundError when it is forgotten."""
        request = admin_pb2.ExplainRequest(request_id=request_id)
        return decode_explanation(self._call(lambda index: self._admin[index].Explain, request))

    def drain(self, worker_id: str, *, undo: bool = False) -> int:
        """Has a worker give its work away, or take work again. The number of requests that it still has.

        Returns at once; ask again to learn when nothing is left. Raises NotFoundError when there is no such worker.
        """
        request = admin_pb2.DrainRequest(worker_id=worker_id, undo=undo)
        response: admin_pb2.DrainResponse = self._call(lambda index: self._admin[index].Drain, request)
        return response.num_requests

    def reset_prefix_cache(self) -> int:
        """Forgets every cached block that no request uses, on all workers. The number of blocks forgotten."""
        request = admin_pb2.ResetPrefixCacheRequest()
        response: admin_pb2.ResetPrefixCacheResponse = self._call(
            lambda index: self._admin[index].ResetPrefixCache, request
        )
        return response.num_dropped_blocks

    def check_integrity(self) -> IntegrityReport:
        """Checks the invariants of every pool. Raises SlipstreamError with the fault when one is broken."""
        request = admin_pb2.CheckIntegrityRequest()
        return codec.decode_integrity(self._call(lambda index: self._admin[index].CheckIntegrity, request))

    def _stream(self, request: inference_pb2.GenerateRequest, timeout_s: float) -> Iterator[GenerationDelta]:
        refusals: list[SlipstreamError] = []
        for index in self._targets.in_turn():
            call: Any = self._inference[index].Generate(request, timeout=timeout_s)
            begun = False
            try:
                for response in call:
                    begun = True
                    yield codec.decode_response(response)
                return
            except grpc.RpcError as error:
                refused = error_of(error, self._targets.addresses[index])
                if begun or not is_unavailable(error):
                    raise refused from None
                refusals.append(refused)
            finally:
                call.cancel()  # of no effect when the call has ended
        raise none_answers(refusals)

    def _call(self, method: Callable[[int], Any], request: Any) -> Any:
        refusals: list[SlipstreamError] = []
        for index in self._targets.in_turn():
            try:
                return method(index)(request, timeout=min(self._timeout_s, CONTROL_TIMEOUT_S))
            except grpc.RpcError as error:
                refused = error_of(error, self._targets.addresses[index])
                if not is_unavailable(error) and not isinstance(refused, NotFoundError):
                    raise refused from None
                refusals.append(refused)
        raise none_answers(refusals)
