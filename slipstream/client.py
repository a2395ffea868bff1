"""The blocking Python client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Unpack

import grpc

from common.errors import NotFoundError, SlipstreamError, UnavailableError
from protos import admin_pb2, inference_pb2
from router.generation import ModelCard
from slipstream import codec
from slipstream.answer_progress import BrokenAnswerError
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
from slipstream.pursuit import Pursuit
from slipstream.router_link import RouterLink
from slipstream.silence_watch import SilenceWatch
from slipstream.targets import Targets


class Client:
    """Calls one router or several. A call goes to the router with the fewest calls of this client; one that does not
    answer is passed over, and an answer whose router is lost goes on at another one, each token coming once.

    Safe to use from many threads. Each call ends in an answer or in one of `common.errors`' classes.

        with Client("127.0.0.1:50051") as client:
            print(client.generate("The capital of France is", max_tokens=16).text)
            for delta in client.stream(messages=[{"role": "user", "content": "Hello"}]):
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
        self._watch = SilenceWatch(silence_s)
        self._lock = threading.Lock()
        self._caller = Caller.of(tls_dir=tls_dir, api_key=api_key)
        self._links = [self._open(address) for address in self._targets.addresses]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections and every call on them. Idempotent."""
        self._watch.close()
        for link in self._links:
            link.channel.close()

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
        return self._stream(codec.encode_request(prompt, options))

    def models(self) -> tuple[ModelCard, ...]:
        """The models that are served."""
        return codec.decode_models(
            self._call(lambda link: link.inference.ListModels, inference_pb2.ListModelsRequest())
        )

    def status(self) -> FleetStatus:
        """The fleet as a router sees it."""
        return codec.decode_status(self._call(lambda link: link.admin.Status, admin_pb2.StatusRequest()))

    def explain(self, request_id: str = "") -> Explanation:
        """Why a request went where it went; without an id, the last one. Raises NotFoundError when it is forgotten."""
        request = admin_pb2.ExplainRequest(request_id=request_id)
        return decode_explanation(self._call(lambda link: link.admin.Explain, request))

    def drain(self, worker_id: str, *, undo: bool = False) -> int:
        """Has a worker give its work away, or take work again. The number of requests that it still has.

        Returns at once; ask again to learn when nothing is left. Raises NotFoundError when there is no such worker.
        """
        request = admin_pb2.DrainRequest(worker_id=worker_id, undo=undo)
        response: admin_pb2.DrainResponse = self._call(lambda link: link.admin.Drain, request)
        return response.num_requests

    def reset_prefix_cache(self) -> int:
        """Forgets every cached block that no request uses, on all workers. The number of blocks forgotten."""
        request = admin_pb2.ResetPrefixCacheRequest()
        response: admin_pb2.ResetPrefixCacheResponse = self._call(lambda link: link.admin.ResetPrefixCache, request)
        return response.num_dropped_blocks

    def check_integrity(self) -> IntegrityReport:
        """Checks the invariants of every pool. Raises SlipstreamError with the fault when one is broken."""
        request = admin_pb2.CheckIntegrityRequest()
        return codec.decode_integrity(self._call(lambda link: link.admin.CheckIntegrity, request))

    def _stream(self, request: inference_pb2.GenerateRequest) -> Iterator[GenerationDelta]:
        pursuit, metadata = self._pursue(request), self._caller.metadata
        while True:
            attempt = pursuit.begin()
            link = self._take(attempt.index)
            watched = self._watch.add(
                link.inference.Generate(attempt.request, timeout=attempt.timeout_s, metadata=metadata)
            )
            try:
                for response in watched:
                    delta = pursuit.take(response)
                    link.has_answered = True
                    if delta is not None:
                        yield delta
                return
            except BrokenAnswerError as error:
                pause_s = pursuit.note_failure(error)
            except grpc.RpcError as error:
                address = self._targets.addresses[attempt.index]
                if watched.silent:
                    self._replace(attempt.index, link)
                    silence = RouterSilentError(address, self._silence_s)
                    pause_s = pursuit.note_failure(silence, by_connection=link.has_answered)
                else:
                    pause_s = pursuit.note_failure(error_of(error, address))
            finally:
                watched.call.cancel()  # of no effect when the call has ended
                self._watch.remove(watched)
                self._give_back(link)
                pursuit.end()
            time.sleep(pause_s)

    def _call(self, method: Callable[[RouterLink[grpc.Channel]], Any], request: Any) -> Any:
        refusals: list[SlipstreamError] = []
        tried: set[int] = set()
        while len(tried) < len(self._targets):
            index = self._targets.begin(tried)
            tried.add(index)
            link = self._take(index)
            try:
                timeout_s = min(self._timeout_s, CONTROL_TIMEOUT_S)
                answer = method(link)(request, timeout=timeout_s, metadata=self._caller.metadata)
                self._targets.note_answer(index)
                return answer
            except grpc.RpcError as error:
                refused = error_of(error, self._targets.addresses[index])
                if not isinstance(refused, (UnavailableError, NotFoundError)):
                    raise refused from None
                refusals.append(refused)
            finally:
                self._give_back(link)
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

    def _open(self, address: str) -> RouterLink[grpc.Channel]:
        return RouterLink(self._caller.open(address))

    def _take(self, index: int) -> RouterLink[grpc.Channel]:
        with self._lock:
            link = self._links[index]
            link.num_calls += 1
            return link

    def _replace(self, index: int, silent: RouterLink[grpc.Channel]) -> None:
        with self._lock:
            silent.retired = True
            if self._links[index] is silent:
                self._links[index] = self._open(self._targets.addresses[index])

    def _give_back(self, link: RouterLink[grpc.Channel]) -> None:
        with self._lock:
            link.num_calls -= 1
            if not link.to_be_closed:
                return
        link.channel.close()
