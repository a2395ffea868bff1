"""What each caller should have seen, against what it saw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.chaos.stream import SeenChoice, Stream
from benchmarks.chaos.workload import ChoiceReference, Reference
from common.errors import InvalidRequestError, OverloadedError, UnavailableError

# Of float32 sums in another order.
LOGPROB_TOLERANCE = 1e-3
# What a request may end in that insists on a worker which is gone: the router says so in one of these.
CLEAR_ERRORS = (UnavailableError, OverloadedError, InvalidRequestError)


class Verdict(StrEnum):
    EXACT = "exact"
    LOST = "lost"  # it ended in an error, or not at all
    WRONG = "wrong"
    DUPLICATED = "duplicated"
    REFUSED = "refused"  # with a clear status, where that was to be expected
    CANCELLED = "cancelled"
    SILENT = "silent"  # exact, but for too long there was nothing


BAD = (Verdict.LOST, Verdict.WRONG, Verdict.DUPLICATED, Verdict.SILENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    request_id: str
    verdict: Verdict
    detail: str
    silence_s: float

    @property
    def is_bad(self) -> bool:
        return self.verdict in BAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """`may_refuse`: it insists on a worker, and a clear status is an answer, too. `bound_s` None: silence may be long.

    `others_share` of the machine was other programs' meanwhile: of a silence, as much is theirs.
    """

    reference: Reference
    since_s: float  # monotonic; silence is counted from here on
    bound_s: float | None
    may_refuse: bool
    others_share: float = 0.0


def judge(stream: Stream, expected: Expectation) -> Judgement:
    silence_s = stream.longest_silence_s(expected.since_s)
    verdict, detail = _judge(stream, expected, silence_s)
    return Judgement(request_id=stream.request_id, verdict=verdict, detail=detail, silence_s=silence_s)


def _judge(stream: Stream, expected: Expectation, silence_s: float) -> tuple[Verdict, str]:
    for index, choice in enumerate(stream.choices):
        if choice.repeated:
            return Verdict.DUPLICATED, f"choice {index}: {choice.repeated} tokens came twice"
        if choice.skipped:
            return Verdict.WRONG, f"choice {index}: {choice.skipped} tokens are missing"
    if (difference := _find_difference(stream, expected.reference)) is not None:
        return Verdict.WRONG, difference
    if stream.cancelled:
        return Verdict.CANCELLED, ""
    if stream.error is not None:
        if expected.may_refuse and isinstance(stream.error, CLEAR_ERRORS):
            return Verdict.REFUSED, str(stream.error)
        return Verdict.LOST, f"{type(stream.error).__name__}: {stream.error}"
    if any(choice.finish_reason is None for choice in stream.choices):
        return Verdict.LOST, "the stream ended before the answer"
    own_s = silence_s * (1.0 - expected.others_share)
    if expected.bound_s is not None and own_s > expected.bound_s:
        detail = f"nothing for {silence_s:.2f} s, {own_s:.2f} s of it our own, and {expected.bound_s:g} s are allowed"
        return Verdict.SILENT, detail
    return Verdict.EXACT, ""


def _find_difference(stream: Stream, reference: Reference) -> str | None:
    for index, (seen, wanted) in enumerate(zip(stream.choices, reference.choices, strict=True)):
        for what in _differences(seen, wanted):
            return f"choice {index}: {what}"
    return None


def _differences(seen: SeenChoice, wanted: ChoiceReference) -> Iterator[str]:
    """Of a choice that has not finished, only what there is is compared."""
    count = len(seen.token_ids)
    if tuple(seen.token_ids) != wanted.token_ids[:count]:
        pairs = zip(seen.token_ids, wanted.token_ids, strict=False)
        place = next((place for place, (one, other) in enumerate(pairs) if one != other), len(wanted.token_ids))
        yield f"token {place} of {count} differs"
    if not wanted.text.startswith(seen.text):
        yield "the text differs"
    if wanted.logprobs and len(seen.logprobs) != count:
        yield f"{len(seen.logprobs)} logprobs came with {count} tokens"
    for place, (one, other) in enumerate(zip(seen.logprobs, wanted.logprobs, strict=False)):
        if one.token_id != other.token_id or not math.isclose(one.logprob, other.logprob, abs_tol=LOGPROB_TOLERANCE):
            yield f"logprob {place} differs: {one.logprob} for {other.logprob}"
    if seen.finish_reason is None:
        return
    if count != len(wanted.token_ids) or seen.text != wanted.text:
        yield f"it ended after {count} tokens of {len(wanted.token_ids)}"
    if (seen.finish_reason, seen.stop_string) != (wanted.finish_reason, wanted.stop_string):
        yield f"it ended by {seen.finish_reason}, {seen.stop_string!r}"
