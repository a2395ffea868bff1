"""Traffic to replay: requests in the order of their arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from common.errors import ConfigError

# A simulated year of load reports takes hours.
MAX_ARRIVAL_S = 366 * 86400.0


class TraceRequest(NamedTuple):
    """`block_ids` name the prompt's blocks: two prompts share a prefix as far as their ids are the same."""

    arrival_s: float
    num_tokens: int
    num_new_tokens: int
    block_ids: Sequence[int]
    priority: int = 0  # less is more urgent


class Trace(Protocol):
    """Each iteration begins anew and reads as it goes: a trace need not fit into memory."""

    @property
    def block_size(self) -> int: ...

    def __iter__(self) -> Iterator[TraceRequest]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """Another trace with its first `max_requests`, and with arrivals from 0 on, stretched by `time_scale`."""

    trace: Trace
    time_scale: float = 1.0
    max_requests: int | None = None

    @property
    def block_size(self) -> int:
        return self.trace.block_size

    def __iter__(self) -> Iterator[TraceRequest]:
        """Raises ConfigError where arrivals go back in time, or over more of it than anyone would wait for."""
        first_s = last_s = None
        for request in islice(self.trace, self.max_requests):
            if first_s is None or last_s is None:
                first_s = last_s = request.arrival_s
            if request.arrival_s < last_s:
                raise ConfigError("trace", f"a request arrives at {request.arrival_s:g} s, after one at {last_s:g} s")
            last_s = request.arrival_s
            arrival_s = (last_s - first_s) * self.time_scale
            if arrival_s > MAX_ARRIVAL_S:
                raise ConfigError("trace", f"goes on for {arrival_s:g} s, more than a year: scale its times")
            yield request._replace(arrival_s=arrival_s)


def num_blocks_of(num_tokens: int, block_size: int) -> int:
    """Blocks of a prompt, the last one perhaps in part."""
    return -(-num_tokens // block_size)
