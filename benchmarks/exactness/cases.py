"""Every case of `make exactness`, by the cluster that runs it; and the same cases on fewer clusters for `make test`."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.exactness.case import Cached, Case, FleetSpec, Sampling
from common.config import Role

_BOTH_SIDES = (Role.PREFILL, Role.DECODE)

COLD = Case(name="cold, alone", num_at_once=1, resets=_BOTH_SIDES, as_source=True)
CACHED_ON_BOTH = Case(name="cached on both", prefill_cached=Cached.ALL, decode_cached=Cached.ALL)
CACHED_ON_PREFILL = Case(name="cached on prefill only", resets=(Role.DECODE,), prefill_cached=Cached.ALL)
CACHED_ON_DECODE = Case(name="cached on decode only", resets=(Role.PREFILL,), decode_cached=Cached.ALL)
PARTLY_CACHED = Case(name="partly cached", resets=_BOTH_SIDES, prefill_cached=Cached.PART, decode_cached=Cached.PART)
AT_ONCE = Case(
    name="16 at once",
    num_at_once=16,
    resets=_BOTH_SIDES,
    salted=False,
    prefill_cached=Cached.UNKNOWN,
    decode_cached=Cached.UNKNOWN,
)
PREEMPTED = replace(AT_ONCE, name="16 at once, preempted", preempts=True)
FOUR_CHOICES = Case(name="n = 4", num_choices=4, resets=_BOTH_SIDES, num_prompts=12)
COLD_AT_ONCE = Case(name="cold", resets=_BOTH_SIDES, as_source=True)
CACHED = Case(name="cached", prefill_cached=Cached.ALL, decode_cached=Cached.ALL)

_SEEDED = Case(name="", sampling=Sampling.SEEDED, num_prompts=16, resets=_BOTH_SIDES)
SEEDED_ALONE = replace(_SEEDED, name="seeded, alone", num_at_once=1)
SEEDED_AT_ONCE = replace(
    _SEEDED,
    name="seeded, 16 at once",
    num_at_once=16,
    salted=False,
    prefill_cached=Cached.UNKNOWN,
    decode_cached=Cached.UNKNOWN,
)
# All prompts: the pool must hold the longest, and the short ones alone would not fill it.
SEEDED_PREEMPTED = replace(SEEDED_AT_ONCE, name="seeded, preempted", preempts=True, num_prompts=None)
PENALISED = replace(_SEEDED, name="penalised, n = 2", sampling=Sampling.PENALISED, num_choices=2, num_prompts=12)

SWAPPED = replace(PREEMPTED, name="16 at once, swapped")
PENALISED_SWAPPED = replace(
    SEEDED_PREEMPTED, name="penalised, n = 2, swapped", sampling=PENALISED.sampling, num_choices=2
)

_SPLIT_CASES = (
    COLD,
    CACHED_ON_BOTH,
    CACHED_ON_PREFILL,
    CACHED_ON_DECODE,
    PARTLY_CACHED,
    AT_ONCE,
    FOUR_CHOICES,
    SEEDED_ALONE,
    SEEDED_AT_ONCE,
    PENALISED,
)
_BOTH_CASES = (COLD_AT_ONCE, CACHED, PARTLY_CACHED, AT_ONCE, FOUR_CHOICES, SEEDED_ALONE, SEEDED_AT_ONCE, PENALISED)
_SHORT_CASES = (PREEMPTED, SEEDED_PREEMPTED)
_SWAP_CASES = (SWAPPED, PENALISED_SWAPPED)
_SIZE_CASES = (COLD_AT_ONCE, CACHED)


def _fleets(spec: FleetSpec, split: tuple[Case, ...], both: tuple[Case, ...]) -> tuple[FleetSpec, FleetSpec]:
    return (
        replace(spec, name=f"split{spec.name}", cases=split),
        replace(spec, name=f"both{spec.name}", both=True, cases=both),
    )


# Seeded cases compare with the first of them, so the fleets keep their order.
FULL: tuple[FleetSpec, ...] = (
    *_fleets(FleetSpec(), _SPLIT_CASES, _BOTH_CASES),
    *_fleets(FleetSpec(name=", chunk 64", max_num_batched_tokens=64), (AT_ONCE,), (AT_ONCE,)),
    *_fleets(FleetSpec(name=", few blocks", short_of_blocks=True), _SHORT_CASES, _SHORT_CASES),
    *_fleets(FleetSpec(name=", few blocks, swap", short_of_blocks=True, swaps=True), _SWAP_CASES, _SWAP_CASES),
    *_fleets(FleetSpec(name=", block size 8", block_size=8), _SIZE_CASES, _SIZE_CASES),
    *_fleets(FleetSpec(name=", block size 64", block_size=64), _SIZE_CASES, _SIZE_CASES),
)

# The workload's first prompts are its short ones.
_FAST_PROMPTS = 6


def _fast(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return tuple(replace(case, num_prompts=None if case.num_at_once == 16 else _FAST_PROMPTS) for case in cases)


# Every case and every setting of FULL on eight clusters instead of twelve.
FAST: tuple[FleetSpec, ...] = (
    *_fleets(FleetSpec(), _fast(_SPLIT_CASES), _fast(_BOTH_CASES)),
    # Answers must take several blocks to outgrow what they were granted: longer ones, smaller blocks.
    *_fleets(
        FleetSpec(name=", block size 8, few blocks", block_size=8, short_of_blocks=True, num_new_tokens=40),
        _fast((*_SIZE_CASES, *_SHORT_CASES)),
        _fast((*_SIZE_CASES, *_SHORT_CASES)),
    ),
    *_fleets(
        FleetSpec(
            name=", block size 8, few blocks, swap",
            block_size=8,
            short_of_blocks=True,
            swaps=True,
            num_new_tokens=40,
        ),
        _fast(_SWAP_CASES),
        _fast(_SWAP_CASES),
    ),
    *_fleets(
        FleetSpec(name=", block size 64, chunk 64", block_size=64, max_num_batched_tokens=64),
        _fast(_SIZE_CASES),
        _fast(_SIZE_CASES),
    ),
)
