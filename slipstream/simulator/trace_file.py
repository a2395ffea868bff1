"""Traces in files: the Mooncake format, the Azure CSV, and a CSV of our own."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from common.errors import ConfigError
from slipstream.simulator.trace import Trace, TraceRequest, num_blocks_of

MOONCAKE_BLOCK_SIZE = 512
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
OWN_COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "block_ids")


def open_trace_file(path: Path, block_size: int | None) -> Trace:
    """Told by its content. `block_size` is for files that don't say their own. Raises ConfigError."""
    first = next((line for line in _lines(path)), "").strip()
    if not first:
        raise ConfigError("trace", f"{path} begins with an empty line, or is empty")
    columns = {column.strip() for column in first.split(",")}
    if first.startswith("{"):
        return MooncakeTrace(path, block_size or MOONCAKE_BLOCK_SIZE)
    if columns.issuperset(AZURE_COLUMNS):
        return AzureTrace(path, block_size or 64)
    if columns.issuperset(OWN_COLUMNS):
        return CsvTrace(path, _declared_block_size(path, block_size))
    raise ConfigError(
        "trace",
        f"{path} begins with {first[:60]!r}: neither JSON lines with timestamp, input_length, output_length, hash_ids, "
        f"nor CSV with {', '.join(AZURE_COLUMNS)}, nor CSV with {', '.join(OWN_COLUMNS)}",
    )


@dataclass(frozen=True, slots=True)
class MooncakeTrace:
    """JSON lines: timestamp (ms), input_length, output_length (tokens), hash_ids (one per block of the prompt)."""

    path: Path
    block_size: int = MOONCAKE_BLOCK_SIZE

    def __iter__(self) -> Iterator[TraceRequest]:
        for number, line in enumerate(_lines(self.path), start=1):
            if line.strip():
                yield self._request(line, f"{self.path}, line {number}")

    def _request(self, line: str, place: str) -> TraceRequest:
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise TypeError("no JSON object")
            if not isinstance(record["hash_ids"], list):
                raise TypeError("hash_ids: a list is wanted")
            values = (
                float(record["timestamp"]) / 1000,
                _whole(record["input_length"]),
                _whole(record["output_length"]),
                [_whole(one) for one in record["hash_ids"]],
            )
        except KeyError as error:
            raise ConfigError("trace", f"{place}: field {error} is missing") from None
        except (ValueError, TypeError) as error:
            raise ConfigError("trace", f"{place}: {error}") from None
        return checked(TraceRequest(*values), self.block_size, place)


@dataclass(frozen=True, slots=True)
class AzureTrace:
    """CSV: TIMESTAMP, ContextTokens, GeneratedTokens. It tells no prefixes: every block is another one."""

    path: Path
    block_size: int

    def __iter__(self) -> Iterator[TraceRequest]:
        next_id = 0
        start = None
        for record, place in _records(self.path):
            try:
                # Seven digits of a second are more than Python reads.
                moment = datetime.fromisoformat(record["TIMESTAMP"][:26])
                num_tokens, num_new_tokens = int(record["ContextTokens"]), int(record["GeneratedTokens"])
            except (ValueError, TypeError) as error:
                raise ConfigError("trace", f"{place}: {error}") from None
            start = start or moment
            num_blocks = num_blocks_of(num_tokens, self.block_size)
            yield checked(
                TraceRequest(
                    arrival_s=(moment - start).total_seconds(),
                    num_tokens=num_tokens,
                    num_new_tokens=max(1, num_new_tokens),
                    block_ids=range(next_id, next_id + num_blocks),
                ),
                self.block_size,
                place,
            )
            next_id += num_blocks


@dataclass(frozen=True, slots=True)
class CsvTrace:
    """CSV: arrival_s, input_tokens, output_tokens, block_ids (with spaces between), and if wished priority, block_size.

    Without ids (an empty field) no block of the prompt is shared.
    """

    path: Path
    block_size: int

    def __iter__(self) -> Iterator[TraceRequest]:
        next_id = -1
        for record, place in _records(self.path):
            try:
                num_tokens = int(record["input_tokens"])
                ids = [int(one) for one in record["block_ids"].split()]
                request = TraceRequest(
                    arrival_s=float(record["arrival_s"]),
                    num_tokens=num_tokens,
                    num_new_tokens=int(record["output_tokens"]),
                    block_ids=ids or range(next_id, next_id - num_blocks_of(num_tokens, self.block_size), -1),
                    priority=int(record.get("priority") or 0),
                )
            except (ValueError, TypeError, AttributeError) as error:
                raise ConfigError("trace", f"{place}: {error}") from None
            if not ids:
                next_id -= len(request.block_ids)
            yield checked(request, self.block_size, place)


def checked(request: TraceRequest, block_size: int, place: str) -> TraceRequest:
    """Raises ConfigError when the parts don't fit each other."""
    if not math.isfinite(request.arrival_s):
        raise ConfigError("trace", f"{place}: a request arrives at {request.arrival_s} s")
    if request.num_tokens < 1 or request.num_new_tokens < 1:
        raise ConfigError("trace", f"{place}: a request has at least one token of input and one of output")
    num_blocks = num_blocks_of(request.num_tokens, block_size)
    if len(request.block_ids) != num_blocks:
        raise ConfigError(
            "trace",
            f"{place}: {request.num_tokens} tokens are {num_blocks} blocks of {block_size}, "
            f"but there are {len(request.block_ids)} block ids",
        )
    return request


def _records(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    reader = csv.DictReader(_lines(path), skipinitialspace=True)
    try:
        for record in reader:
            yield record, f"{path}, line {reader.line_num}"
    except csv.Error as error:
        raise ConfigError("trace", f"{path}, line {reader.line_num}: {error}") from None


def _lines(path: Path) -> Iterator[str]:
    """Raises ConfigError when the file can't be read, or is no text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("trace", f"{path} can't be read: {error}") from None


def _whole(value: Any) -> int:
    """Raises TypeError for anything else than a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a whole number is wanted, not {value!r}")
    return value


def _declared_block_size(path: Path, block_size: int | None) -> int:
    """A column of the file's first record, or the option."""
    for record, place in _records(path):
        text = record.get("block_size")
        if text:
            try:
                declared = int(text)
            except ValueError as error:
                raise ConfigError("trace", f"{place}: block_size: {error}") from None
            if declared < 1:
                raise ConfigError("trace", f"{place}: block_size: must be at least 1, is {declared}")
            return declared
        if block_size is None:
            raise ConfigError(
                "block_size", f"{path} does not say it in a column block_size, and the option is not given"
            )
        return block_size
    raise ConfigError("trace", f"{path} has no requests")
