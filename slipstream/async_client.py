"""The asyncio Python client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Unpack

import grpc

from common.errors import NotFoundError, SlipstreamError, UnavailableError
from common.net.patience import Patience
from protos import admin_pb2, inference_pb2
from router.generation import ModelCard
from slipstream import codec
from slipstream.caller import Caller
from slipstream.connection import (
    CONTROL_TIMEOUT_S,
    DEFAULT_RESUME_S,
    DEFAULT_SILENCE_S,
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT_S,
    HEARTBEATS_PER_SILENCE,
    RouterSilentError,
    error_of,
    none_answers,
)
from slipstream.explanation import Explanation, decode_explanation
from slipstream.fleet_status import FleetStatus, IntegrityReport
from slipstream.generation import GenerateOptions, Generation, GenerationBuilder, GenerationDelta
from slipstream.pursuit import Attempt, Pursuit
from slipstream.session import MAX_REQUEST_BYTES, NoSessionError, SessionLink
from slipstream.targets import Targets


class AsyncClient:
    """Calls one router or several. A call goes to the router with the fewest calls of this client; one that does not
    answer is passed over, and an answer whose router is lost goes on at another one, each token coming once.

    Belongs to one event loop. Each call ends in an answer or in one of `common.errors`' classes.

        async with AsyncClient("127.0.0.1:50051") as client:
            print((await client.generate("The capital of France is", max_tokens=16)).text)
            async for delta in client.stream(messages=[{"role": "user", "content": "Hello"}]):
                print(delta.text, end="")
    """

    def __init__(
        self,
        target: str | Sequence[str] = DEFAULT_TARGET,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        silence_s: float = DEFAULT_SILENCE_S,
        resume_s: float = DEFAULT_RESUME_S,
        tls_dir: str | None = None,
        api_key: str | None = None,
    ) -> None:
        """`target` is host:port of a router's gRPC API, several as a list or with commas between them.

        Seconds: `timeout_s` may one call take; after `silence_s` without a sign of life a router is given up; a begun
        answer looks for `resume_s` for a router that goes on with it, 0 not at all. `tls_dir` is a folder with the
        fleet's ca.crt, and with tls.crt and tls.key where routers ask for certificates; None: no TLS. Raises ValueError
        when a target is not host:port, ConfigError when the folder can't be used.
        """
        self._targets = Targets(target)
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._resume_s = resume_s
        self._caller = Caller.of(tls_dir=tls_dir, api_key=api_key)
        self._links = [self._open(address) for address in self._targets.addresses]

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connections and every call on them. Idempotent."""
        for link in self._links:
            await link.close()

    async def generate(
        self, prompt: str | Sequence[int] | None = None, **options: Unpack[GenerateOptions]
    ) -> Generation:
        """The whole answer to a text, to token ids, or to `messages`."""
        builder = GenerationBuilder()
        async for delta in self.stream(prompt, **options):
            builder.add(delta)
        return builder.build()

    def stream(
        self, prompt: str | Sequence[int] | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncIterator[GenerationDelta]:
        """The answer as it grows. Closing the iterator cancels the request and frees all that it holds."""
        return self._stream(codec.encode_request(prompt, options))

    async def models(self) -> tuple[ModelCard, ...]:
        """The models that are served."""
        return codec.decode_models(
            await self._call(lambda link: link.inference.ListModels, inference_pb2.ListModelsRequest())
        )

    async def status(self) -> FleetStatus:
        """The fleet as a router sees it."""
        return codec.decode_status(await self._call(lambda link: link.admin.Status, admin_pb2.StatusRequest()))

    async def explain(self, request_id: str = "") -> Explanation:
        """Why a request went where it went; without an id, the last one. Raises NotFoundError when it is forgotten."""
        request = admin_pb2.ExplainRequest(request_id=request_id)
        return decode_explanation(await self._call(lambda link: link.admin.Explain, request))

    async def drain(self, worker_id: str, *, undo: bool = False) -> int:
        """Has a worker give its work away, or take work again. The number of requests that it still has.

        Returns at once; ask again to learn when nothing is left. Raises NotFoundError when there is no such worker.
        """
        request = admin_pb2.DrainRequest(worker_id=worker_id, undo=undo)
        response: admin_pb2.DrainResponse = await self._call(lambda link: link.admin.Drain, request)
        return response.num_requests

    async def reset_prefix_cache(self) -> int:
        """Forgets every cached block that no request uses, on all workers. The number of blocks forgotten."""
        request = admin_pb2.ResetPrefixCacheRequest()
        response: admin_pb2.ResetPrefixCacheResponse = await self._call(
            lambda link: link.admin.ResetPrefixCache, request
        )
        return response.num_dropped_blocks

    async def check_integrity(self) -> IntegrityReport:
        """Checks the invariants of every pool. Raises SlipstreamError with the fault when one is broken."""
        request = admin_pb2.CheckIntegrityRequest()
        return codec.decode_integrity(await self._call(lambda link: link.admin.CheckIntegrity, request))

    async def _stream(self, request: inference_pb2.GenerateRequest) -> AsyncIterator[GenerationDelta]:
        pursuit = self._pursue(request)
        while True:
            attempt = pursuit.begin()
            link = self._take(attempt.index)
            call = self._ask(link, attempt)
            address = self._targets.addresses[attempt.index]
            patience = Patience(self._silence_s)
            try:
                while (response := await _read(call, patience)) is not grpc.aio.EOF:
                    delta = pursuit.take(response)
                    link.has_answered = True
                    if delta is not None:
                        yield delta
                return
            except NoSessionError:
                pause_s = 0.0  # the next call goes without
            except _SilentError:
                self._replace(attempt.index, link)
                silence = RouterSilentError(address, self._silence_s)
                pause_s = pursuit.note_failure(silence, by_connection=link.has_answered)
            except SlipstreamError as error:
                pause_s = pursuit.note_failure(error)
            except grpc.aio.AioRpcError as error:
                pause_s = pursuit.note_failure(error_of(error, address))
            finally:
                patience.close()
                call.cancel()  # of no effect when the call has ended
                await self._give_back(link)
                pursuit.end()
            await asyncio.sleep(pause_s)

    def _ask(self, link: SessionLink, attempt: Attempt) -> Any:
        """The answer as a call, to be read and cancelled."""
        if link.session.is_unknown or attempt.request.ByteSize() > MAX_REQUEST_BYTES:
            return link.inference.Generate(attempt.request, timeout=attempt.timeout_s, metadata=self._caller.metadata)
        return link.session.ask(attempt.request, attempt.timeout_s)

    async def _call(self, method: Callable[[SessionLink], Any], request: Any) -> Any:
        refusals: list[SlipstreamError] = []
        tried: set[int] = set()
        while len(tried) < len(self._targets):
            index = self._targets.begin(tried)
            tried.add(index)
            link = self._take(index)
            try:
                timeout_s = min(self._timeout_s, CONTROL_TIMEOUT_S)
                answer = await method(link)(request, timeout=timeout_s, metadata=self._caller.metadata)
                self._targets.note_answer(index)
                return answer
            except grpc.aio.AioRpcError as error:
                refused = error_of(error, self._targets.addresses[index])
                if not isinstance(refused, (UnavailableError, NotFoundError)):
                    raise refused from None
                refusals.append(refused)
            finally:
                await self._give_back(link)
                self._targets.end(index)
        raise none_answers(refusals)

    def _pursue(self, request: inference_pb2.GenerateRequest) -> Pursuit:
        return Pursuit(
            self._targets,
            request,
            timeout_s=self._timeout_s,
            resume_s=self._resume_s,
            heartbeat_s=self._silence_s / HEARTBEATS_PER_SILENCE,
        )

    def _open(self, address: str) -> SessionLink:
        return SessionLink(self._caller.open_async(address), address, self._caller.metadata)

    def _take(self, index: int) -> SessionLink:
        link = self._links[index]
        link.num_calls += 1
        return link

    def _replace(self, index: int, silent: SessionLink) -> None:
        silent.retired = True
        if self._links[index] is silent:
            self._links[index] = self._open(self._targets.addresses[index])

    async def _give_back(self, link: SessionLink) -> None:
        link.num_calls -= 1
        if link.to_be_closed:
            await link.close()


class _SilentError(Exception):
    """Nothing has come for too long."""


async def _read(call: Any, patience: Patience) -> Any:
    try:
        with patience:
            return await call.read()
    except TimeoutError:
        raise _SilentError from None
