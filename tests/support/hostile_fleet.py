"""What attacks a real fleet: calls with any bytes, a router that is none, and an honest caller beside them."""

from __future__ import annotations

import itertools
import queue
import threading
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck

from common.net.protocol import PROTOCOL_VERSION
from protos import sampling_pb2, worker_pb2, worker_pb2_grpc
from slipstream.client import Client
from slipstream.launcher import Cluster

CALL_TIMEOUT_S = 5.0
# A stream is ended after so long: it may have nothing more to say.
STREAM_TIMEOUT_S = 0.3
PROMPT = [5, 6, 7, 8] * 12
# What nobody outside should be able to bring about.
FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}
FUZZ: Any = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@dataclass(frozen=True, slots=True)
class Fleet:
    cluster: Cluster
    channels: dict[str, grpc.Channel]

    def answer(self) -> tuple[int, ...]:
        with Client(self.cluster.grpc_addresses) as client:
            return client.generate(PROMPT, max_tokens=8, temperature=0.0, ignore_eos=True).choices[0].token_ids

    def undo_drains(self) -> None:
        """Draining is what operators do, and hostile messages may say it, too."""
        with Client(self.cluster.grpc_addresses) as client:
            for worker in self.cluster.workers:
                client.drain(worker.id, undo=True)

    def tracebacks(self) -> list[str]:
        """What surprised a process, by its log: the last line of each stack."""
        found = []
        for path in sorted(self.cluster.log_dir.glob("*.log")):
            for part in path.read_text(errors="replace").split("Traceback (most recent call last):")[1:]:
                lines = part.splitlines()
                end = next((line for line in lines[1:] if not line.startswith((" ", "\t"))), lines[-1])
                found.append(f"{path.stem}: {end}")
        return found


class Honest:
    """A caller who asks the same all the time, while others are hostile."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._expected = fleet.answer()
        self._stop = threading.Event()
        self._answers: list[tuple[int, ...]] = []
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def check(self) -> None:
        """Every answer so far was right, and there was one."""
        assert self._failures == []
        assert self._answers and set(self._answers) == {self._expected}

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._stop.wait(0.05):
            try:
                self._answers.append(self._fleet.answer())
            except Exception as error:
                self._failures.append(error)


def send(channel: grpc.Channel, method: MethodDescriptor, requests: list[bytes]) -> None:
    """Sends them, reads what comes for a while, and ends the call."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    timeout_s = STREAM_TIMEOUT_S if method.client_streaming or method.server_streaming else CALL_TIMEOUT_S
    opening = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    sent: Any = iter(requests) if method.client_streaming else requests[0]
    call: Any = opening(path)
    try:
        answer = call(sent, timeout=timeout_s)
        if method.server_streaming:
            list(itertools.islice(answer, 50))
            answer.cancel()
    except grpc.RpcError as error:
        refused: Any = error
    else:
        return
    assert refused.code() not in FAULTS, f"{path}: {refused.code()}: {refused.details()}"
    if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        assert method.client_streaming or method.server_streaming, f"{path} does not answer"


class HostileRouter:
    """Attached to a worker as routers are; says what it is told. A context manager: the stream ends with it."""

    def __init__(self, fleet: Fleet, process: str) -> None:
        stub_type = worker_pb2_grpc.PrefillWorkerStub if process == "prefill" else worker_pb2_grpc.DecodeWorkerStub
        self._outgoing: queue.SimpleQueue[worker_pb2.AttachRequest | None] = queue.SimpleQueue()
        hello = worker_pb2.AttachHello(router_id="fuzz", protocol_version=PROTOCOL_VERSION)
        self.send(worker_pb2.AttachRequest(hello=hello))
        self._call: Any = stub_type(fleet.channels[process]).Attach(iter(self._outgoing.get, None), timeout=30.0)

    def __enter__(self) -> HostileRouter:
        next(self._call)  # the worker's hello
        return self

    def __exit__(self, *_: object) -> None:
        self._outgoing.put(None)
        self._call.cancel()

    def send(self, message: worker_pb2.AttachRequest) -> None:
        self._outgoing.put(message)

    def settle(self, request_id: str) -> None:
        """Waits for the end of a short good leg that is sent last: by then all before it have been looked at."""
        last = leg(request_id)
        self.send(worker_pb2.AttachRequest(submit=worker_pb2.Submit(leg=last)))
        for message in self._call:
            for end in message.step.ends:
                assert end.status not in ("INTERNAL", "UNKNOWN"), end
                assert end.request_id != request_id, end
            if any(output.request_id == request_id and output.finish_reason for output in message.step.outputs):
                return


def leg(request_id: str, num_tokens: int = 40) -> worker_pb2.Leg:
    """One that a worker takes."""
    sampling = sampling_pb2.SamplingParams(max_tokens=2, temperature=0.0, seed=1, ignore_eos=True)
    prompt = [5 + index % 100 for index in range(num_tokens)]
    return worker_pb2.Leg(
        request_id=request_id, attempt=1, choice_indices=[0], prompt_token_ids=prompt, sampling=sampling
    )


def merged(base: Message, *others: Message) -> Any:
    """The good message with what the hostile ones say in place of what it said."""
    for other in others:
        base.MergeFrom(other)
    return base
