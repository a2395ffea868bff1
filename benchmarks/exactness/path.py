"""Did the requests of a case take the path that the case is about? Usage, routes and both sides' counters must agree.

Exact tokens prove nothing about a cache that was not used or a transfer that did not happen.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.exactness.case import Cached, Case, FleetSpec, part_cached
from benchmarks.exactness.counters import Counters
from benchmarks.exactness.fleet import Served, Traffic

# Of 16 requests at once, this many must have been seen in one batch: the first end while the last prefill.
MIN_PEAK_RUNNING = 4

# Whether blocks run out depends on when requests come.
NOT_PREEMPTED = "nothing was preempted"
NOT_HANDED_BACK = "no request was handed back to the router"
NOT_SWAPPED = "nothing was swapped out"
NOT_SWAPPED_IN = "nothing was swapped in"
TIMING_FAULTS = frozenset({NOT_PREEMPTED, NOT_HANDED_BACK, NOT_SWAPPED, NOT_SWAPPED_IN})


def path_faults(spec: FleetSpec, case: Case, traffic: Traffic, workers: tuple[str | None, str]) -> list[str]:
    """A line per claim that does not hold. `workers`: ids of the prefill (None: no such) and the decode worker."""
    faults = list(_preemption_faults(spec, case, traffic))
    if case.num_at_once >= 16 and traffic.peak_running < MIN_PEAK_RUNNING:
        faults.append(f"at most {traffic.peak_running} requests were seen in one batch")
    for served in traffic.served:
        faults.extend(f"{served.ask.reference.name}: {fault}" for fault in _request_faults(spec, case, served, workers))
    faults.extend(_both_faults(traffic) if spec.both else _split_faults(traffic))
    if not case.preempts or spec.swaps:
        faults.extend(_work_faults(spec, case, traffic))
    return faults


def describe_path(traffic: Traffic) -> str:
    """The counters that the report shows."""
    prefill, decode = traffic.prefill, traffic.decode
    attempts = sum(served.route.attempts for served in traffic.served) - len(traffic.served)
    parts = [
        f"reused {prefill.prefix_hit_tokens + decode.prefix_hit_tokens} tokens",
        f"sent {decode.received_blocks} blocks ({decode.received_bytes / 2**20:.1f} MiB)",
        f"not sent {sum(served.route.decode_cached_blocks for served in traffic.served)}",
        f"{decode.num_preemptions} preemptions",
        f"{decode.num_swap_outs} swaps ({decode.swapped_out_blocks} blocks out, {decode.swapped_in_blocks} in)",
        f"{attempts} replanned",
        f"batch {traffic.peak_running}",
    ]
    return ", ".join(parts)


def _preemption_faults(spec: FleetSpec, case: Case, traffic: Traffic) -> Iterator[str]:
    num_preemptions = traffic.prefill.num_preemptions + traffic.decode.num_preemptions
    num_swap_outs = traffic.prefill.num_swap_outs + traffic.decode.num_swap_outs
    if (not case.preempts or spec.swaps) and num_preemptions:
        yield f"{num_preemptions} preemptions, though there were blocks enough"
    if not (case.preempts and spec.swaps) and num_swap_outs:
        yield f"{num_swap_outs} requests were swapped out, though there were blocks enough, or no room on the host"
    if not case.preempts:
        return
    if spec.swaps:
        if traffic.decode.num_swap_outs == 0:
            yield NOT_SWAPPED
        if traffic.decode.swapped_in_blocks == 0:
            yield NOT_SWAPPED_IN
        return
    if traffic.decode.num_preemptions == 0:
        yield NOT_PREEMPTED
    if not spec.both:
        handed_back = [served for served in traffic.served if served.route.preemptions]
        if not handed_back:
            yield NOT_HANDED_BACK
        if any(served.route.attempts < 2 for served in handed_back):
            yield "a request was handed back and not planned again"


def _request_faults(spec: FleetSpec, case: Case, served: Served, workers: tuple[str | None, str]) -> Iterator[str]:
    usage, route, ask = served.usage, served.route, served.ask
    num_prompt_tokens = len(ask.reference.prompt_token_ids)
    if served.prompt_token_ids != ask.reference.prompt_token_ids:
        yield "the router's prompt tokens are not the reference's"
    if usage.prompt_tokens != num_prompt_tokens:
        yield f"usage tells {usage.prompt_tokens} prompt tokens of {num_prompt_tokens}"
    if usage.generated_tokens != ask.num_new_tokens * ask.num_choices:
        yield f"usage tells {usage.generated_tokens} generated tokens"
    expected_tokens = _expected_cached_tokens(case, num_prompt_tokens, spec.block_size)
    if expected_tokens is not None and usage.cached_tokens != expected_tokens:
        yield f"usage tells {usage.cached_tokens} cached tokens, not {expected_tokens}"
    if route.decode_worker != workers[1]:
        yield f"decoded on {route.decode_worker!r}, not {workers[1]!r}"
    if spec.both:
        if route.transferred_blocks or route.transferred_bytes:
            yield f"{route.transferred_blocks} blocks were transferred in role both"
        return
    if route.prefill_worker != workers[0] and route.attempts == 1:
        yield f"prefilled on {route.prefill_worker!r}, not {workers[0]!r}"
    yield from _transfer_faults(spec, case, served)


def _transfer_faults(spec: FleetSpec, case: Case, served: Served) -> Iterator[str]:
    route, num_prompt_tokens = served.route, len(served.ask.reference.prompt_token_ids)
    if route.attempts > 1:
        return
    num_blocks = -(-num_prompt_tokens // spec.block_size)
    if route.transferred_blocks + route.decode_cached_blocks != num_blocks:
        yield (
            f"{route.transferred_blocks} blocks sent and {route.decode_cached_blocks} not sent of the prompt's "
            f"{num_blocks}"
        )
    expected = _expected_decode_blocks(case, num_prompt_tokens, spec.block_size)
    if expected is not None and route.decode_cached_blocks not in expected:
        yield f"decode held {route.decode_cached_blocks} blocks, not {expected.start} to {expected.stop - 1}"
    if (route.transferred_bytes > 0) is not (route.transferred_blocks > 0):
        yield f"{route.transferred_bytes} bytes in {route.transferred_blocks} blocks"


def _split_faults(traffic: Traffic) -> Iterator[str]:
    prefill, decode = traffic.prefill, traffic.decode
    if prefill.sent_bytes != decode.received_bytes or prefill.sent_blocks != decode.received_blocks:
        yield (
            f"prefill sent {prefill.sent_blocks} blocks of {prefill.sent_bytes} bytes, decode received "
            f"{decode.received_blocks} of {decode.received_bytes}"
        )
    if decode.received_bytes == 0 and any(len(one.ask.reference.prompt_token_ids) > 1 for one in traffic.served):
        yield "no KV was transferred"
    told = sum(served.route.transferred_bytes for served in traffic.served)
    if told != decode.received_bytes:
        yield f"routes tell {told} bytes, decode received {decode.received_bytes}"
    if decode.num_prefilled_tokens:
        yield f"decode computed {decode.num_prefilled_tokens} prompt tokens itself"


def _both_faults(traffic: Traffic) -> Iterator[str]:
    if traffic.decode.received_bytes or traffic.decode.sent_bytes or traffic.prefill != Counters():
        yield "KV was transferred in role both"


def _work_faults(spec: FleetSpec, case: Case, traffic: Traffic) -> Iterator[str]:
    """The computing side's counters against what each answer told."""
    computing = traffic.decode if spec.both else traffic.prefill
    cached = sum(served.usage.cached_tokens for served in traffic.served)
    prompts = sum(len(served.ask.reference.prompt_token_ids) for served in traffic.served)
    generated = sum(served.usage.generated_tokens for served in traffic.served)
    if computing.prefix_hit_tokens != cached:
        yield f"{computing.prefix_hit_tokens} tokens found in the prefix cache, usage tells {cached}"
    if computing.num_prefilled_tokens != prompts - cached:
        yield f"{computing.num_prefilled_tokens} prompt tokens computed, not {prompts - cached}"
    counted = traffic.prefill.num_generated_tokens + traffic.decode.num_generated_tokens
    if counted != generated:
        yield f"{counted} tokens counted as generated, usage tells {generated}"
    if case.prefill_cached is Cached.UNKNOWN and len(traffic.served) > case.num_at_once and cached == 0:
        yield "prompts that share prefixes reused nothing"


def _expected_cached_tokens(case: Case, num_prompt_tokens: int, block_size: int) -> int | None:
    """Whole blocks, and one prompt token is always computed."""
    most = min(num_prompt_tokens // block_size * block_size, num_prompt_tokens - 1)
    match case.prefill_cached:
        case Cached.NOTHING:
            return 0
        case Cached.PART:
            return min(most, part_cached(num_prompt_tokens)[0] // block_size * block_size)
        case Cached.ALL:
            return most
        case Cached.UNKNOWN:
            return None


def _expected_decode_blocks(case: Case, num_prompt_tokens: int, block_size: int) -> range | None:
    match case.decode_cached:
        case Cached.NOTHING:
            return range(1)
        case Cached.PART:
            # The part was answered with two tokens: the first of them may be the prompt's next, and fill a block.
            given = part_cached(num_prompt_tokens)[1]
            return range(given // block_size, (given + 1) // block_size + 1)
        case Cached.ALL:
            # Whether a last full block is taken as present, though one token is computed again, is the sink's choice.
            return range((num_prompt_tokens - 1) // block_size, num_prompt_tokens // block_size + 1)
        case Cached.UNKNOWN:
            return None
