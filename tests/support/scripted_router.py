"""A real gRPC server that answers as it is told to: a router for tests of what calls one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import grpc

from protos import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc, sampling_pb2

SEED = 77
DIGEST = bytes(range(16))


@dataclass(kw_only=True)
class Script:
    """What the next calls get. `words` are the tokens of an answer, one message each."""

    words: tuple[str, ...] = ("The ", "sky ", "is blue.")
    fail_after: int | None = None  # messages before the failure
    code: grpc.StatusCode = grpc.StatusCode.INTERNAL
    details: str = "broken"
    trailers: tuple[tuple[str, str], ...] = ()
    endless: bool = False  # keeps silent after the words
    heartbeats: bool = False  # says meanwhile that it lives
    tells_start: bool = True
    knows_resume: bool = True
    knows_sessions: bool = True
    has_chat_template: bool = True
    requests: list[inference_pb2.GenerateRequest] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)


class ScriptedRouter(inference_pb2_grpc.InferenceServicer, admin_pb2_grpc.AdminServicer):
    def __init__(self) -> None:
        self.script = Script()
        self.on_request: Callable[[inference_pb2.GenerateRequest], None] = lambda request: None
        self.requests: list[inference_pb2.GenerateRequest] = []  # of all scripts
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8), options=[("grpc.so_reuseport", 0)])
        inference_pb2_grpc.add_InferenceServicer_to_server(self, self._server)
        admin_pb2_grpc.add_AdminServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def Generate(self, request: inference_pb2.GenerateRequest, context: Any) -> Iterator[Any]:
        self.requests.append(request)
        self.on_request(request)
        script = self.script
        script.requests.append(request)
        script.arrived.set()
        context.add_callback(script.cancelled.set)
        if request.WhichOneof("prompt") == "chat" and not script.has_chat_template:
            context.set_trailing_metadata((("slipstream-field", "messages"),))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "messages: this model has no chat template")
        begun = 0
        if script.knows_resume and request.HasField("resume_from"):
            begun = len(request.resume_from.choices[0].token_ids)
        for index, word in enumerate(script.words):
            if index < begun:
                continue
            if script.fail_after == index:
                context.set_trailing_metadata(script.trailers)
                context.abort(script.code, script.details)
            message = _message(request, index, word)
            if script.tells_start and index == begun:
                message.start.CopyFrom(inference_pb2.AnswerStart(seed=SEED, prompt_digest=DIGEST))
            yield message
        while script.endless and context.is_active():
            if script.heartbeats:
                yield inference_pb2.GenerateResponse(request_id="r1")
            time.sleep(0.01)
        yield _last_message(request, len(script.words))

    def Session(self, requests: Iterator[inference_pb2.SessionRequest], context: Any) -> Iterator[Any]:
        if not self.script.knows_sessions:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        context.send_initial_metadata(())
        parts: Queue[inference_pb2.AnswerPart | None] = Queue()
        answers: dict[int, _AnswerContext] = {}

        def answer(request_id: int, request: inference_pb2.GenerateRequest) -> None:
            end = inference_pb2.AnswerEnd(status="OK")
            try:
                for response in self.Generate(request, answers[request_id]):
                    parts.put(inference_pb2.AnswerPart(id=request_id, response=response))
            except _AbortedError as error:
                end = error.end
            parts.put(inference_pb2.AnswerPart(id=request_id, end=end))

        def read() -> None:
            with suppress(Exception):  # of a stream that the caller has ended
                for request in requests:
                    if request.WhichOneof("kind") == "cancel":
                        answers[request.id].end()
                        continue
                    answers[request.id] = _AnswerContext(context)
                    threading.Thread(target=answer, args=(request.id, request.generate), daemon=True).start()
            for one in answers.values():
                one.end()
            parts.put(None)

        threading.Thread(target=read, daemon=True).start()
        while (part := parts.get()) is not None:
            yield inference_pb2.SessionResponse(parts=[part])

    def ListModels(self, request: Any, context: Any) -> inference_pb2.ListModelsResponse:
        card = inference_pb2.ModelCard(id="tiny", max_model_len=128, vocab_size=300, created_s=1)
        return inference_pb2.ListModelsResponse(models=[card])

    def Status(self, request: Any, context: Any) -> admin_pb2.StatusResponse:
        worker = admin_pb2.WorkerStatus(
            worker_id="decode-0",
            role=2,
            state=2,
            model="tiny",
            address="127.0.0.1:7001",
            reachable=True,
            backend="torch",
            load={
                "num_blocks": 100,
                "num_free_blocks": 60,
                "num_cached_blocks": 30,
                "num_running": 3,
                "num_waiting": 7,
                "max_num_seqs": 64,
                "prefix_query_tokens": 200,
                "prefix_hit_tokens": 50,
            },
        )
        router = admin_pb2.RouterStatus(router_id="router-0", ready=True, uptime_s=12, version="0.1.0")
        return admin_pb2.StatusResponse(workers=[worker], router=router)

    def ResetPrefixCache(self, request: Any, context: Any) -> admin_pb2.ResetPrefixCacheResponse:
        return admin_pb2.ResetPrefixCacheResponse(num_dropped_blocks=30)

    def CheckIntegrity(self, request: Any, context: Any) -> admin_pb2.CheckIntegrityResponse:
        return admin_pb2.CheckIntegrityResponse(num_blocks=100, num_free_blocks=100)


class _AbortedError(Exception):
    def __init__(self, end: inference_pb2.AnswerEnd) -> None:
        super().__init__(end.message)
        self.end = end


class _AnswerContext:
    """Of one answer of a session, as a call's."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._trailers: dict[str, str] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._ended = False

    def add_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def set_trailing_metadata(self, trailers: Sequence[tuple[str, str]]) -> None:
        self._trailers = dict(trailers)

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise _AbortedError(
            inference_pb2.AnswerEnd(
                status=code.name,
                message=details,
                field=self._trailers.get("slipstream-field", ""),
                retry_after_ms=int(self._trailers.get("slipstream-retry-after-ms", 0)),
            )
        )

    def is_active(self) -> bool:
        return not self._ended and self._context.is_active()

    def end(self) -> None:
        self._ended = True
        for callback in self._callbacks:
            callback()


def _message(request: inference_pb2.GenerateRequest, index: int, word: str) -> inference_pb2.GenerateResponse:
    choices = [
        inference_pb2.ChoiceDelta(index=choice, first_index=index, token_ids=[100 + index], text=word)
        for choice in range(request.sampling.n if request.sampling.HasField("n") else 1)
    ]
    return inference_pb2.GenerateResponse(request_id="r1", choices=choices)


def _last_message(request: inference_pb2.GenerateRequest, num_tokens: int) -> inference_pb2.GenerateResponse:
    choices = [
        inference_pb2.ChoiceDelta(
            index=choice, first_index=num_tokens, finish_reason=sampling_pb2.FINISH_REASON_STOP, stop_string="\n"
        )
        for choice in range(request.sampling.n if request.sampling.HasField("n") else 1)
    ]
    return inference_pb2.GenerateResponse(
        request_id="r1",
        choices=choices,
        usage=inference_pb2.Usage(prompt_tokens=5, cached_tokens=2, generated_tokens=num_tokens),
        timings=inference_pb2.Timings(ttft_ms=20, total_ms=50),
        route=inference_pb2.RouteTaken(prefill_worker="prefill-0", decode_worker="decode-0", attempts=1),
    )
