"""Runs a soak: a real Valkey, fake workers that publish, evict, die and return, and routers' real lookups."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
from redis import Redis

from benchmarks.index_soak.asker import run_asker
from benchmarks.index_soak.fleet import Kill, run_fleet
from benchmarks.index_soak.prompts import STRIDE
from benchmarks.index_soak.report import Soak, print_report
from common.index.points import IndexSpace
from common.index.server import MIB, EmbeddedIndexConfig, EmbeddedIndexServer

NUM_FLEETS = 2
NUM_ASKERS = 2
SAMPLE_INTERVAL_S = 5.0
FIRST_DEATH_S = 20.0
DEATH_INTERVAL_S = 120.0
RETURN_S = 45.0  # later than the silent are retired


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index_soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="after the fleet is filled (default: 600)")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--deaths", type=int, default=100, help="workers that die at once")
    options = parser.parse_args()
    with (
        EmbeddedIndexServer(EmbeddedIndexConfig(max_memory_bytes=2048 * MIB)) as server,
        EmbeddedIndexServer() as twin,
    ):
        return 0 if print_report(_Run(server, twin, options).soak()) else 1


class _Run:
    def __init__(self, server: EmbeddedIndexServer, twin: EmbeddedIndexServer, options: argparse.Namespace) -> None:
        self._options = options
        self._redis = Redis.from_url(server.url)
        self._context = multiprocessing.get_context("spawn")
        space = IndexSpace(namespace="soak", index_stride=STRIDE)
        share = options.workers // NUM_FLEETS
        self._fleets = [
            self._spawn(run_fleet, server.url, space, number * share, share) for number in range(NUM_FLEETS)
        ]
        self._askers = [
            self._spawn(run_asker, server.url, server.pid, twin.url, space, seed) for seed in range(NUM_ASKERS)
        ]
        self._measured = {"server": psutil.Process(server.pid)}
        for name, group in (("fleet", self._fleets), ("router", self._askers)):
            for number, (process, _) in enumerate(group):
                self._measured[f"{name} {number}"] = psutil.Process(process.pid)

    def soak(self) -> Soak:
        started = time.monotonic()
        for _, pipe in self._fleets:
            assert pipe.recv() is None  # filled
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"{self._options.workers} workers registered and filled in {time.monotonic() - started:.0f} s")
        self._redis.config_set("slowlog-log-slower-than", 2000)
        self._redis.slowlog_reset()
        self._drain()
        cpu = self._cpu_seconds()
        started = time.monotonic()
        soak = self._measure(Soak(), started)
        elapsed = time.monotonic() - started
        soak.cpu_share = {name: (used - cpu[name]) / elapsed for name, used in self._cpu_seconds().items()}
        soak.longest_command = _longest_command(self._redis)
        for process, pipe in (*self._fleets, *self._askers):
            process.kill()
            process.join()
            pipe.close()
        return soak

    def _measure(self, soak: Soak, started: float) -> Soak:
        ends, sample_at, die_at = started + self._options.seconds, started, started + FIRST_DEATH_S
        pipes = [pipe for _, pipe in (*self._fleets, *self._askers)]
        while (now := time.monotonic()) < ends:
            if now >= die_at:
                soak.deaths.append(now)
                die_at += DEATH_INTERVAL_S
                for _, pipe in self._fleets:
                    pipe.send(Kill(self._options.deaths // NUM_FLEETS, RETURN_S))
            if now >= sample_at:
                sample_at += SAMPLE_INTERVAL_S
                self._sample(soak)
            for ready in wait(pipes, timeout=0.2):
                assert isinstance(ready, Connection)
                soak.take(ready.recv())
        return soak

    def _sample(self, soak: Soak) -> None:
        sizes = {"server used_memory": int(self._redis.info("memory")["used_memory"])}
        sizes |= {f"{name} RSS": process.memory_info().rss for name, process in self._measured.items()}
        for name, size in sizes.items():
            soak.memory_bytes.setdefault(name, []).append(size)

    def _drain(self) -> None:
        """Forgets what came in while the fleet was filled."""
        for _, pipe in (*self._fleets, *self._askers):
            while pipe.poll():
                pipe.recv()

    def _cpu_seconds(self) -> dict[str, float]:
        times = {name: process.cpu_times() for name, process in self._measured.items()}
        return {name: used.user + used.system for name, used in times.items()}

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=target, args=(theirs, *arguments), daemon=True)
        process.start()
        theirs.close()
        return process, ours


def _longest_command(redis: Redis) -> str:
    entries = sorted(redis.slowlog_get(128), key=lambda entry: int(entry["duration"]))
    if not entries:
        return "under 2 ms"
    words = bytes(entries[-1]["command"]).split()[:2]
    return f"{entries[-1]['duration'] / 1000:.1f} ms ({b' '.join(words).decode(errors='replace')})"


if __name__ == "__main__":
    sys.exit(main())
