"""How much of a prompt's KV moves while the prompt is still computed: on real workers, started here."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from common.config import EngineConfig, Role, TransferConfig
from protos import admin_pb2, admin_pb2_grpc
from slipstream.client import Client
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster

CHUNK_TOKENS = 256
NUM_CHUNKS = 8
NUM_NEW_TOKENS = 12
POLL_S = 0.004
# From the end of a chunk's compute until its token is at the client, at most: samples in this time are not counted.
DELIVERY_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """One prompt. Seconds; `early_share` is of the bytes: on decode before the last chunk's compute ended.

    `commit_s`: from the first token until the commit was answered, which the engine does with its first step after it.
    """

    num_chunks: int
    num_bytes: int
    early_share: float
    commit_s: float
    token_1_to_2_s: float
    tpot_s: float

    @property
    def exposed_transfer_s(self) -> float:
        """By how much token 2 came later than a token after it does."""
        return max(0.0, self.token_1_to_2_s - self.tpot_s)

    @property
    def gap_in_tpot(self) -> float:
        return self.token_1_to_2_s / self.tpot_s


@contextmanager
def start_workers(model: str, transports: tuple[str, ...]) -> Iterator[Cluster]:
    config = ClusterConfig(
        engine=EngineConfig(
            model=model, max_num_batched_tokens=CHUNK_TOKENS, kv_memory="768MiB", num_threads=1, max_model_len=4096
        ),
        transfer=TransferConfig(kv_transports=transports),
        grpc_port=0,
        http_port=0,
        max_local_prefill_tokens=0,
    )
    with Cluster(config) as cluster:
        yield cluster


def measure_overlap(cluster: Cluster, num_chunks: int, num_runs: int) -> list[Overlap]:
    """One prompt after the other, each new to both workers; one before, which does not count."""
    decode = next(worker for worker in cluster.workers if worker.role is Role.DECODE)
    with Client(cluster.grpc_addresses, timeout_s=300.0) as client, grpc.insecure_channel(decode.address) as channel:
        watch = ReceivedBytes(admin_pb2_grpc.AdminStub(channel))
        runs = [_run(client, watch, num_chunks, salt) for salt in range(num_runs + 1)]
    return runs[1:]


class ReceivedBytes:
    """A worker's counter of KV bytes received, sampled while something runs. `samples`: (when asked, bytes)."""

    def __init__(self, stub: admin_pb2_grpc.AdminStub) -> None:
        self._stub = stub
        self.samples: list[tuple[float, int]] = []

    @contextmanager
    def sampling(self) -> Iterator[None]:
        self.samples = [self._sample()]
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(POLL_S):
                self.samples.append(self._sample())

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.samples.append(self._sample())

    def received_before(self, moment_s: float) -> int:
        before = [num_bytes for at_s, num_bytes in self.samples if at_s <= moment_s]
        return max(before) - self.samples[0][1]

    @property
    def received(self) -> int:
        return self.samples[-1][1] - self.samples[0][1]

    def _sample(self) -> tuple[float, int]:
        load = self._stub.Status(admin_pb2.StatusRequest(), timeout=10.0).workers[0].load
        return time.monotonic(), load.received_bytes


def _run(client: Client, watch: ReceivedBytes, num_chunks: int, salt: int) -> Overlap:
    prompt = [1000 + (salt * 7919 + num_chunks * 104_729 + index * 31) % 40_000 for index in range(num_chunks * 256)]
    arrivals: list[float] = []
    with watch.sampling():
        for delta in client.stream(prompt, max_tokens=NUM_NEW_TOKENS, temperature=0.0, ignore_eos=True):
            arrivals += [time.monotonic()] * sum(len(choice.token_ids) for choice in delta.choices)
            last = delta
    assert last.timings is not None and len(arrivals) == NUM_NEW_TOKENS
    return Overlap(
        num_chunks=num_chunks,
        num_bytes=watch.received,
        early_share=watch.received_before(arrivals[0] - DELIVERY_S) / watch.received,
        commit_s=last.timings.transfer_s,
        token_1_to_2_s=arrivals[1] - arrivals[0],
        tpot_s=(arrivals[-1] - arrivals[1]) / (NUM_NEW_TOKENS - 2),
    )


def print_overlap(runs: Sequence[Overlap]) -> None:
    first = runs[0]
    print(
        f"{first.num_chunks} chunk{'s' if first.num_chunks > 1 else ' '} of {CHUNK_TOKENS} tokens,"
        f" {first.num_bytes / 1e6:6.1f} MB:"
        f" {median(runs, 'early_share'):4.0%} on decode before the last chunk's compute ended,"
        f" exposed transfer {median(runs, 'exposed_transfer_s') * 1000:.1f} ms,"
        f" tokens 1 to 2 {median(runs, 'gap_in_tpot'):.2f} TPOT of {median(runs, 'tpot_s') * 1000:.0f} ms,"
        f" commit answered after {median(runs, 'commit_s') * 1000:.0f} ms"
    )


def median(runs: Sequence[Overlap], field: str) -> float:
    return float(statistics.median(getattr(run, field) for run in runs))
