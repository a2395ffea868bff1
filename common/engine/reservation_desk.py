"""Grants room for KV that prefill workers will send: credits first, blocks when they are asked for."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from common.cost import StepTimes
from common.engine.block_forecast import BlockEvent, blocks_suffice
from common.engine.output_forecast import OutputForecast
from common.engine.reservation_table import ReservationTable, ReservedLeg
from common.engine.results import Reservation
from common.engine.scheduler import Scheduler
from common.errors import OverloadedError, StaleTicketError
from common.kv.block_map import GroupMap
from common.kv.manager import KVCacheManager, TokenArray
from common.request import Leg


class ReservationDesk:
    """Owner: the engine, one thread.

    A credit is a promise against a forecast: at the time that its blocks will be asked for, they are expected to be
    free, counting what the running requests are likely to take yet, and give back, until then. Held are blocks only
    from `map` on. A `map` that finds none is refused, and from then on no other request is admitted in front of it.
    """

    def __init__(
        self,
        *,
        kv: KVCacheManager,
        scheduler: Scheduler,
        reservations: ReservationTable,
        forecast: OutputForecast,
        step_times: Callable[[], StepTimes],
        clock: Callable[[], float],
    ) -> None:
        self._kv = kv
        self._scheduler = scheduler
        self._reservations = reservations
        self._forecast = forecast
        self._step_times = step_times
        self._clock = clock

    def reserve(self, leg: Leg, token_ids: TokenArray, map_after_s: float | None) -> Reservation:
        """A credit for the leg's KV and the outputs that are likely to come; mapped when `map_after_s` is None.

        Raises OverloadedError when blocks or places in the batch are short.
        """
        num_choices = len(leg.choice_indices)
        scheduler = self._scheduler
        num_taken = self._reservations.num_choices + sum(len(sequence.choice_indices) for sequence in scheduler)
        if num_taken + num_choices > scheduler.config.max_num_seqs:
            raise OverloadedError(f"all {scheduler.config.max_num_seqs} places in the batch are taken")
        reserved = ReservedLeg(leg=leg, token_ids=token_ids, table=self._kv.open(leg.cache_salt))
        growth_tokens = self._forecast.remaining_tokens(leg.sampling, len(leg.output_token_ids))
        num_cached = self._kv.count_cached_tokens(reserved.table, token_ids) // self._kv.block_size
        # An idle engine takes whatever fits: nothing that runs could be hurt.
        if num_taken and not self._will_fit(reserved, num_cached, map_after_s or 0.0):
            raise OverloadedError(f"no room for the KV of {len(token_ids)} tokens")
        if map_after_s is None:
            self._map(reserved)
        else:
            reserved.map_at_s = self._clock() + map_after_s
        reservation_id = secrets.token_hex(16)
        self._reservations.add(reservation_id, reserved)
        self._count_reservations()
        return Reservation(
            reservation_id=reservation_id,
            maps=self._maps(reserved) if reserved.is_mapped else None,
            credit_tokens=len(token_ids) + num_choices * growth_tokens,
            cached_blocks=reserved.num_present_blocks if reserved.is_mapped else num_cached,
            num_tokens=len(token_ids),
        )

    def map(self, reservation_id: str) -> tuple[GroupMap, ...]:
        """Blocks for a credit: pins what is cached, allocates the rest. Mapped already, it is answered alike.

        Raises StaleTicketError when the reservation has ended, OverloadedError while blocks are short.
        """
        reserved = self._reservations.get(reservation_id)
        if reserved is None:
            raise StaleTicketError("the reservation has ended")
        if not reserved.is_mapped:
            try:
                self._map(reserved)
            except OverloadedError:
                reserved.is_owed = True
                self._count_reservations()
                raise
            reserved.is_owed = False
            self._count_reservations()
        return self._maps(reserved)

    def release(self, reservation_id: str, *, quarantine: bool) -> None:
        """Ends a reservation without a commit. Idempotent."""
        self._reservations.release(reservation_id, quarantine=quarantine)
        self._count_reservations()

    def take(self, reservation_id: str) -> None:
        """Ends a reservation whose blocks go on to be used."""
        self._reservations.take(reservation_id)
        self._count_reservations()

    def _map(self, reserved: ReservedLeg) -> None:
        token_ids = reserved.token_ids
        cached_tokens = self._kv.try_begin(reserved.table, token_ids, max_cached_tokens=len(token_ids))
        if cached_tokens is None:
            raise OverloadedError(f"no room for the KV of {len(token_ids)} tokens")
        reserved.is_mapped = True
        reserved.num_present_blocks = cached_tokens // self._kv.block_size
        if not reserved.leg.canary:
            self._scheduler.prefix_query_tokens += len(token_ids)
            self._scheduler.prefix_hit_tokens += cached_tokens

    def _will_fit(self, reserved: ReservedLeg, num_cached: int, map_after_s: float) -> bool:
        needs = [
            BlockEvent(map_after_s, self._kv.num_blocks_for(len(reserved.token_ids)) - num_cached),
            BlockEvent(map_after_s, self._expected_growth(reserved)),
            *self._needs(),
        ]
        pinned = self._kv.count_idle_cached_blocks(reserved.table, reserved.token_ids) if not map_after_s else 0
        releases = self._releases() if max(needs).at_s > 0 else ()
        return blocks_suffice(self._kv.pool.num_free_blocks - pinned, needs, releases)

    def _needs(self) -> Iterator[BlockEvent]:
        """What the running choices, those swapped out and the credits given before are likely to take yet."""
        now = self._clock()
        for sequence in self._scheduler.swapped:
            remaining = self._forecast.remaining_tokens(sequence.sampling, sequence.num_output_tokens)
            growth = len(sequence.choice_indices) * self._kv.num_blocks_for(remaining)
            yield BlockEvent(0.0, self._kv.num_blocks_for(sequence.num_tokens) + growth)
        for sequence in self._scheduler.running:
            remaining = self._forecast.remaining_tokens(sequence.sampling, sequence.num_output_tokens)
            yield BlockEvent(0.0, len(sequence.choice_indices) * self._kv.num_blocks_for(remaining))
        for reserved in self._reservations.reserved:
            at_s = 0.0 if reserved.is_mapped else max(0.0, reserved.map_at_s - now)
            yield BlockEvent(at_s, self._expected_growth(reserved))
            if not reserved.is_mapped:
                yield BlockEvent(at_s, self._kv.num_blocks_for(len(reserved.token_ids)))

    def _releases(self) -> Iterator[BlockEvent]:
        """What the running choices are likely to give back, and when."""
        running = self._scheduler.running
        num_kv_tokens = sum(sequence.num_computed_tokens for sequence in running)
        step_s = self._step_times().decode_step_s(len(running), num_kv_tokens)
        for sequence in running:
            if sequence.num_remaining_tokens == 1:
                remaining = self._forecast.remaining_tokens(sequence.sampling, sequence.num_output_tokens)
                num_blocks = self._kv.count_own_blocks(sequence.table) + self._kv.num_blocks_for(remaining)
                yield BlockEvent(remaining * step_s, num_blocks)

    def _expected_growth(self, reserved: ReservedLeg) -> int:
        leg = reserved.leg
        remaining = self._forecast.remaining_tokens(leg.sampling, len(leg.output_token_ids))
        return len(leg.choice_indices) * self._kv.num_blocks_for(remaining)

    def _count_reservations(self) -> None:
        self._scheduler.num_reserved_choices = self._reservations.num_choices
        self._scheduler.num_owed_blocks = sum(
            self._kv.num_blocks_for(len(reserved.token_ids))
            for reserved in self._reservations.reserved
            if reserved.is_owed
        )

    def _maps(self, reserved: ReservedLeg) -> tuple[GroupMap, ...]:
        block_ids = tuple(reserved.table.block_ids.tolist())
        present = tuple(index < reserved.num_present_blocks for index in range(len(block_ids)))
        return tuple(
            GroupMap(group_id=group.group_id, block_ids=block_ids, present=present) for group in self._kv.spec.groups
        )
