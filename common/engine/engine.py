"""The engine: what workers call. One scheduler, one runner, and the books of legs, reservations and leases."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Series
from itertools import count

import numpy as np

from common.engine.lease_table import LeaseTable
from common.engine.output_forecast import OutputForecast
from common.engine.output_processor import OutputProcessor
from common.engine.reservation_desk import ReservationDesk
from common.engine.reservation_table import ReservationTable, ReservedLeg
from common.engine.results import Integrity, KeptChoice, LegEnded, LegEndReason, Load, Reservation, StepResult
from common.engine.runner import Runner
from common.engine.scheduler import Scheduler
from common.engine.scheduler_config import SchedulerConfig
from common.engine.sequence import Sequence
from common.engine.sequence_registry import SequenceRegistry
from common.engine.sequence_status import SequenceStatus, status_of
from common.engine.step_executor import StepExecutor
from common.engine.stop import StopRules
from common.engine.work_meter import WorkMeter
from common.errors import (
    IntegrityError,
    InvalidRequestError,
    OverloadedError,
    SlipstreamError,
    StaleTicketError,
    Status,
    TransferError,
)
from common.kv.block_map import GroupMap
from common.kv.cache_event import CacheEvent
from common.kv.first_token import FirstToken
from common.kv.manager import KVCacheManager, TokenArray
from common.request import Leg, LegKey, RequestId


class Engine:
    """Computes legs step by step. One thread calls it: the engine thread. No locks, no I/O.

    A leg with `hand_over` runs to its first tokens; its blocks, once reported in `StepResult.computed`, stay as
    they are until `release_lease`, however the leg ends. A leg that was reserved starts at `commit`. A choice that
    decodes can be stopped with its KV by `keep`, to go on elsewhere.
    `max_model_len` tokens must fit the pool. When `step` schedules nothing though there is work, the work waits
    for blocks that a transfer holds: call again when something was released, or after a few milliseconds.
    """

    def __init__(
        self,
        *,
        runner: Runner,
        kv: KVCacheManager,
        config: SchedulerConfig,
        eos_token_ids: frozenset[int],
        max_model_len: int,
        vocab_size: int,
        hand_back_when_preempted: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert kv.num_blocks_for(max_model_len) <= kv.pool.num_blocks, "one full sequence must fit the pool"
        self.config = config
        self.kv = kv
        self.max_model_len = max_model_len
        self.vocab_size = vocab_size
        self._executor = StepExecutor(runner)
        self._clock = clock
        self._hand_back = hand_back_when_preempted
        self._scheduler = Scheduler(kv=kv, config=config, requeue_preempted=not hand_back_when_preempted)
        self._registry = SequenceRegistry()
        self._leases = LeaseTable(kv)
        self._reservations = ReservationTable(kv)
        self._forecast = OutputForecast(config.output_forecast_tokens)
        self._meter = WorkMeter(config.max_num_batched_tokens)
        self._desk = ReservationDesk(
            kv=kv,
            scheduler=self._scheduler,
            reservations=self._reservations,
            forecast=self._forecast,
            step_times=lambda: self._meter.times,
            clock=clock,
        )
        self._outputs = OutputProcessor(
            scheduler=self._scheduler,
            kv=kv,
            registry=self._registry,
            leases=self._leases,
            forecast=self._forecast,
            stop_rules=StopRules(eos_token_ids=eos_token_ids, max_model_len=max_model_len),
            vocab_size=vocab_size,
        )
        self._arrivals = count()
        self._ends: list[LegEnded] = []

    def submit(self, leg: Leg, *, hand_over: bool = False) -> None:
        """Queues a leg. Raises InvalidRequestError, OverloadedError when the queue is full."""
        token_ids = self._check(leg)
        if len(self._scheduler.waiting) >= self.config.max_num_waiting:
            raise OverloadedError(f"the queue holds {self.config.max_num_waiting} requests already")
        self._supersede(leg)
        sequence = Sequence(
            leg=leg,
            choice_indices=leg.choice_indices,
            token_ids=token_ids,
            table=self.kv.open(leg.cache_salt),
            arrival=next(self._arrivals),
            submit_s=self._clock(),
            hand_over=hand_over,
        )
        num_cached_tokens = self.kv.count_cached_tokens(sequence.table, token_ids)
        sequence.expected_cached_tokens = max(sequence.expected_cached_tokens, num_cached_tokens)
        self._registry.add(sequence)
        self._scheduler.enqueue(sequence)

    def reserve(self, leg: Leg, *, map_after_s: float | None = None) -> Reservation:
        """Room for the KV of prompt and outputs so far, and the outputs that are likely to come.

        None: pins what is cached and allocates the rest at once. Else it is a credit only, and `map_reservation` is
        expected in so many seconds. Raises InvalidRequestError, and OverloadedError when blocks or places in the batch
        are short.
        """
        return self._desk.reserve(leg, self._check(leg), map_after_s)

    def map_reservation(self, reservation_id: str) -> tuple[GroupMap, ...]:
        """Blocks for a credit. Raises StaleTicketError when it has ended, OverloadedError while blocks are short."""
        return self._desk.map(reservation_id)

    def commit(self, reservation_id: str, first_tokens: Series[FirstToken], attempt: int) -> None:
        """The reserved blocks' KV has arrived: admits the choices that go on, from their second token.

        Raises StaleTicketError when the reservation has ended or is of another attempt; TransferError when the
        first tokens are not of its choices, InvalidRequestError when a newer attempt is here: it ends then too.
        """
        reserved = self._reservations.get(reservation_id)
        if reserved is None or reserved.leg.attempt != attempt or not reserved.is_mapped:
            raise StaleTicketError("the reservation has ended, has no blocks, or is of another attempt")
        leg = reserved.leg
        try:
            self._check_first_tokens(leg, first_tokens)
            self._supersede(leg)
        except SlipstreamError:
            self.release_reservation(reservation_id, quarantine=False)
            raise
        self._desk.take(reservation_id)
        try:
            self.kv.register_computed(reserved.table, reserved.token_ids, len(reserved.token_ids))
            self._admit(reserved, first_tokens)
        finally:
            self.kv.free(reserved.table)

    def release_reservation(self, reservation_id: str, *, quarantine: bool) -> None:
        """Ends a reservation without a commit. Idempotent. With `quarantine` the blocks that were to be written
        are held until `end_quarantine`."""
        self._desk.release(reservation_id, quarantine=quarantine)

    def end_quarantine(self, reservation_id: str) -> None:
        """Nothing writes to the dropped reservation's blocks any more. Idempotent."""
        self._reservations.end_quarantine(reservation_id)

    def release_lease(self, request_id: RequestId, attempt: int, choice_indices: tuple[int, ...] = ()) -> None:
        """Nothing reads the blocks of a leg that was to be handed over, or of a kept choice, any more. Idempotent.

        `choice_indices` are the leg's, or the kept choice; empty: everything of that attempt. A leg that still computes
        ends no sooner for it, but its blocks then go back at once.
        """
        for sequence in self._registry.find(request_id, choice_indices):
            if sequence.leg.attempt == attempt and sequence.hand_over:
                sequence.lease_released = True
        self._leases.release(request_id, attempt, choice_indices)

    def cancel(self, request_id: RequestId, attempt: int | None = None, choice_indices: tuple[int, ...] = ()) -> None:
        """Ends choices (empty: all) of an attempt (None: any). Idempotent; blocks are free on return.

        A reservation stays, for its blocks may be being written, but its cancelled choices will not start.
        """
        for sequence in self._registry.find(request_id, choice_indices):
            if attempt is None or sequence.leg.attempt == attempt:
                self._cancel_choices(sequence, choice_indices or sequence.choice_indices)
        self._reservations.cancel(request_id, attempt, choice_indices)

    def give_back_waiting(self) -> list[Leg]:
        """Takes legs out of the queue that have not begun, and returns them: they end without a LegEnded."""
        given_back = [one for one in self._scheduler.waiting if not one.start_told and not one.num_output_tokens]
        for sequence in given_back:
            self._outputs.end(sequence)
        return [sequence.leg for sequence in given_back]

    def keep(self, request_id: RequestId, attempt: int, choice_index: int) -> KeptChoice | None:
        """Stops a choice for good, and keeps its KV as it is until `release_lease` names the choice.

        It ends without a LegEnded: whoever moves it answers for it. None, and nothing has changed, when there is no
        KV to move: the choice is not here in this attempt, waits, or is still in its prompt.
        """
        for sequence in self._registry.find(request_id, (choice_index,)):
            if sequence.leg.attempt == attempt and sequence.is_movable:
                return self._outputs.keep(sequence)
        return None

    def step(self) -> StepResult:
        """Schedules, runs and takes in one step. Never raises for a request's sake; EngineError when nothing can be
        computed any more."""
        for sequence in self._registry.pop_expired(self._clock()):
            self._ends.append(
                self._outputs.end_early(
                    sequence, LegEndReason.DEADLINE, Status.DEADLINE_EXCEEDED, "the deadline has passed"
                )
            )
        output = self._scheduler.schedule()
        started_s = self._clock()
        for entry in output.scheduled:
            if entry.sequence.first_step_s is None:
                entry.sequence.first_step_s = started_s
        if self._hand_back:
            for sequence in output.preempted:
                message = "no blocks are left for it here"
                self._ends.append(self._outputs.end_early(sequence, LegEndReason.PREEMPTED, None, message))
        step = StepResult(ends=self._ends, num_scheduled_tokens=output.num_tokens)
        self._ends = []
        results = self._executor.run(output)
        if output.scheduled:
            now = self._clock()
            self._meter.add(output, now - started_s)
            for entry, result in zip(output.scheduled, results, strict=True):
                self._outputs.process(entry, result, step, now)
        return step

    def has_work(self) -> bool:
        """Whether `step` has something to do or to tell."""
        return bool(self._ends or len(self._registry))

    def upcoming_hand_overs(self) -> tuple[LegKey, ...]:
        """Waiting legs to hand over that the next step's budget is likely to reach."""
        budget = self.config.max_num_batched_tokens
        upcoming = []
        for sequence in self._scheduler.waiting:
            if budget <= 0:
                break
            budget -= sequence.num_tokens - sequence.expected_cached_tokens
            if sequence.hand_over:
                upcoming.append(sequence.leg.key)
        return tuple(upcoming)

    def load(self) -> Load:
        scheduler, pool = self._scheduler, self.kv.pool
        num_waiting_tokens = sum(sequence.num_tokens for sequence in scheduler.waiting)
        num_waiting_tokens += sum(
            sequence.num_remaining_tokens for sequence in scheduler.running if sequence.num_remaining_tokens > 1
        )
        return Load(
            num_running=scheduler.num_running_choices,
            num_waiting=len(scheduler.waiting),
            num_swapped=scheduler.num_swapped_choices,
            num_waiting_tokens=num_waiting_tokens,
            num_reservations=len(self._reservations),
            num_blocks=pool.num_blocks,
            num_free_blocks=pool.num_free_blocks,
            num_cached_blocks=pool.num_cached_blocks,
            num_quarantined_blocks=pool.num_quarantined_blocks,
            prefix_query_tokens=scheduler.prefix_query_tokens,
            prefix_hit_tokens=scheduler.prefix_hit_tokens,
            num_preemptions=scheduler.num_preemptions,
            num_host_blocks=self.kv.host_pool.num_blocks,
            num_free_host_blocks=self.kv.host_pool.num_free_blocks,
            num_swap_outs=scheduler.num_swap_outs,
            swapped_out_blocks=scheduler.swapped_out_blocks,
            swapped_in_blocks=scheduler.swapped_in_blocks,
            num_generated_tokens=self._outputs.num_generated_tokens,
            num_prefilled_tokens=self._outputs.num_prefilled_tokens,
            max_num_seqs=self.config.max_num_seqs,
            num_running_tokens=sum(
                sequence.num_computed_tokens for sequence in scheduler.running if sequence.num_remaining_tokens == 1
            ),
            queue_s=self._meter.queue_s(scheduler.waiting, scheduler.running),
            busy_s=self._meter.busy_s,
            step_times=self._meter.times,
        )

    def statuses(self) -> list[SequenceStatus]:
        """Of every sequence in queue or batch, and of those whose blocks a transfer still reads."""
        return [status_of(sequence) for sequence in (*self._registry, *self._leases)]

    def reset_prefix_cache(self) -> int:
        """Forgets every cached prefix; what runs goes on. Returns the number of blocks forgotten."""
        return self.kv.pool.clear()

    def drain_cache_events(self) -> list[CacheEvent]:
        """Changes of the prefix cache since the last call, oldest first."""
        return self.kv.pool.drain_events()

    def check_integrity(self) -> Integrity:
        """Compares all books. Raises IntegrityError when they differ."""
        self.kv.check_integrity()
        queued = set(map(id, self._scheduler))
        if queued != {id(sequence) for sequence in self._registry}:
            raise IntegrityError("queue and batch are not the sequences that are registered")
        if self._scheduler.num_reserved_choices != self._reservations.num_choices:
            raise IntegrityError("the scheduler counts other reservations than there are")
        pool = self.kv.pool
        return Integrity(
            num_blocks=pool.num_blocks,
            num_free_blocks=pool.num_free_blocks,
            num_used_blocks=pool.num_used_blocks,
            num_quarantined_blocks=pool.num_quarantined_blocks,
            num_used_host_blocks=self.kv.host_pool.num_blocks - self.kv.host_pool.num_free_blocks,
            num_reservations=self._reservations.num_unsettled,
            num_requests=len(self._registry) + len(self._leases),
        )

    def _check(self, leg: Leg) -> TokenArray:
        """The leg's tokens, prompt and outputs. Raises InvalidRequestError that names the field."""
        num_tokens = len(leg.prompt_token_ids) + len(leg.output_token_ids)
        if num_tokens >= self.max_model_len:
            raise InvalidRequestError(
                "prompt", f"{num_tokens} tokens leave no room to answer: the model takes {self.max_model_len} in all"
            )
        if len(leg.choice_indices) > self.config.max_num_seqs:
            raise InvalidRequestError("n", f"at most {self.config.max_num_seqs} here, got {len(leg.choice_indices)}")
        token_ids = np.array(leg.prompt_token_ids + leg.output_token_ids, dtype=np.int64)
        if token_ids.min() < 0 or token_ids.max() >= self.vocab_size:
            raise InvalidRequestError("prompt", f"token ids must be from 0 to {self.vocab_size - 1}")
        leg.sampling.check_vocabulary(self.vocab_size)
        return token_ids.astype("<u4")

    def _check_first_tokens(self, leg: Leg, first_tokens: Series[FirstToken]) -> None:
        choice_indices = [token.choice_index for token in first_tokens]
        if not choice_indices or len(set(choice_indices)) != len(choice_indices):
            raise TransferError("there must be one first token per choice")
        if not set(choice_indices) <= set(leg.choice_indices):
            raise TransferError(f"first tokens of choices {choice_indices} for choices {list(leg.choice_indices)}")
        if any(not 0 <= token.token_id < self.vocab_size for token in first_tokens):
            raise TransferError("a first token is not in the vocabulary")

    def _supersede(self, leg: Leg) -> None:
        """Ends older attempts at the same choices. Raises InvalidRequestError when this is not a newer one."""
        others = self._registry.find(leg.request_id, leg.choice_indices)
        if any(other.leg.attempt >= leg.attempt for other in others):
            raise InvalidRequestError("attempt", f"attempt {leg.attempt} of {leg.request_id} is here, or a newer one")
        for other in others:
            self._cancel_choices(other, leg.choice_indices)

    def _cancel_choices(self, sequence: Sequence, choice_indices: Series[int]) -> None:
        kept = tuple(index for index in sequence.choice_indices if index not in choice_indices)
        if not kept:
            self._ends.append(self._outputs.end_early(sequence, LegEndReason.CANCELLED))
            return
        self._ends.append(_cancelled(sequence.leg, tuple(set(sequence.choice_indices) - set(kept))))
        sequence.choice_indices = kept

    def _admit(self, reserved: ReservedLeg, first_tokens: Series[FirstToken]) -> None:
        leg = reserved.leg
        arrived = Sequence(
            leg=leg,
            choice_indices=leg.choice_indices,
            token_ids=reserved.token_ids,
            table=reserved.table,
            arrival=next(self._arrivals),
            submit_s=self._clock(),
            start_told=True,
        )
        arrived.num_computed_tokens = len(reserved.token_ids)
        wanted = tuple(token for token in first_tokens if token.choice_index not in reserved.cancelled_choices)
        cancelled = {token.choice_index for token in first_tokens} & reserved.cancelled_choices
        if cancelled:
            self._ends.append(_cancelled(leg, tuple(sorted(cancelled))))
        self._outputs.fork(arrived, wanted, arrival=arrived.arrival)


def _cancelled(leg: Leg, choice_indices: tuple[int, ...]) -> LegEnded:
    return LegEnded(
        request_id=leg.request_id,
        attempt=leg.attempt,
        choice_indices=choice_indices,
        reason=LegEndReason.CANCELLED,
    )
