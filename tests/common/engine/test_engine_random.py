"""Random legs, hand-overs, migrations, swaps, cancels and failures over two engines that are short of blocks.

Whatever happens, the tokens of a choice are those of an undisturbed run, and at the end every block of both pools
is free. All books are checked after each step.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from common.engine.results import LegEndReason, Reservation
from common.engine.scheduler_config import SchedulerConfig
from common.engine.scheduler_output import ScheduledSequence
from common.errors import OverloadedError
from common.request import Leg, RequestId
from tests.support.engine import HashEngine, expected_outputs, make_leg

NUM_REQUESTS = 60


@dataclass
class Transfer:
    leg: Leg
    reservation: Reservation
    unsent: list[tuple[int, int, int]] = field(default_factory=list)  # logical block, block at source, content's age


class Fleet:
    """A prefill and a decode engine with a conductor that plans, retries, and sometimes does harm."""

    def __init__(self, seed: int, num_host_blocks: int) -> None:
        self.random = random.Random(seed)
        config = SchedulerConfig(max_num_seqs=6, max_num_batched_tokens=24, output_forecast_tokens=1)
        self.prefill = HashEngine(num_blocks=20, config=config, max_model_len=96)
        self.decode = HashEngine(
            num_blocks=16, config=config, hand_back=True, max_model_len=96, num_host_blocks=num_host_blocks
        )
        self.num_moves = 0
        self.pending: list[Leg] = []
        self.legs: dict[RequestId, Leg] = {}
        self.transfers: dict[tuple[RequestId, int, tuple[int, ...]], Transfer] = {}
        self.outputs: dict[tuple[RequestId, int], list[int]] = {}
        self.done: set[tuple[RequestId, int]] = set()
        self.quarantined: list[str] = []
        self.attempts = 1
        for host in (self.prefill, self.decode):
            host.runner.before_execute = self.sometimes_raise

    def sometimes_raise(self, scheduled: Sequence[ScheduledSequence]) -> None:
        if len(scheduled) > 1 and self.random.random() < 0.02:
            raise RuntimeError("a passing failure")

    def make_leg(self, index: int) -> Leg:
        stem = self.random.choice([range(30), range(100, 117), range(200, 224)])
        prompt = [*stem[: self.random.randint(1, len(stem))], *(300 + index for _ in range(self.random.randint(0, 9)))]
        leg = make_leg(
            prompt,
            request_id=f"r{index}",
            choices=self.random.choice([1, 1, 1, 2, 3]),
            priority=self.random.randint(0, 1),
            max_tokens=self.random.randint(1, 30),
            seed=index,
        )
        self.legs[leg.request_id] = leg
        return leg

    def replan(self, leg: Leg, choice_indices: tuple[int, ...]) -> None:
        """What a router does with choices that were handed back: each goes on from its tokens so far."""
        self.attempts += 1
        without_tokens = tuple(c for c in choice_indices if (leg.request_id, c) not in self.outputs)
        if without_tokens:
            self.pending.append(replace(leg, attempt=self.attempts, choice_indices=without_tokens, output_token_ids=()))
        for choice_index in choice_indices:
            outputs = self.outputs.get((leg.request_id, choice_index))
            if outputs and (leg.request_id, choice_index) not in self.done:
                self.pending.append(
                    replace(
                        leg,
                        attempt=self.attempts,
                        choice_indices=(choice_index,),
                        output_token_ids=tuple(outputs),
                    )
                )

    def start(self, leg: Leg) -> bool:
        if self.random.random() < 0.2:
            try:
                self.decode.engine.submit(leg)
            except OverloadedError:
                return False
            return True
        try:
            reservation = self.decode.engine.reserve(leg)
        except OverloadedError:
            return False
        self.transfers[leg.request_id, leg.attempt, leg.choice_indices] = Transfer(leg, reservation)
        self.prefill.engine.submit(leg, hand_over=True)
        return True

    def take_tokens(self, step: object) -> None:
        for output in step.tokens:  # type: ignore[attr-defined]
            key = (output.request_id, output.choice_index)
            outputs = self.outputs.setdefault(key, [])
            assert output.first_index == len(outputs)
            outputs.extend(output.token_ids)
            if output.finish_reason is not None:
                self.done.add(key)

    def step_prefill(self) -> None:
        step = self.prefill.engine.step()
        self.prefill.engine.check_integrity()
        self.take_tokens(step)
        for computed in step.computed:
            transfer = self.transfers.get((computed.request_id, computed.attempt, computed.choice_indices))
            if transfer is not None:
                transfer.unsent += [
                    (computed.first_logical_block + offset, block_id, 0)
                    for offset, block_id in enumerate(computed.block_ids)
                ]
        handed_over = {(h.request_id, h.attempt, h.choice_indices): h for h in step.handed_over}
        for key, transfer in list(self.transfers.items()):
            self.send(transfer)
            if key in handed_over:
                self.decode.engine.commit(
                    transfer.reservation.reservation_id, handed_over[key].first_tokens, transfer.leg.attempt
                )
                self.end_transfer(key)
            elif all((key[0], choice) in self.done for choice in key[2]):
                self.drop_transfer(key, quarantine=False)

    def send(self, transfer: Transfer) -> None:
        (group,) = transfer.reservation.maps
        for logical_block, block_id, _ in transfer.unsent:
            if not group.present[logical_block]:
                data = self.prefill.runner.block_bytes(block_id)
                self.decode.runner.write_block_bytes(group.block_ids[logical_block], data)
        transfer.unsent.clear()

    def end_transfer(self, key: tuple[RequestId, int, tuple[int, ...]]) -> None:
        del self.transfers[key]
        self.prefill.engine.release_lease(*key)

    def drop_transfer(self, key: tuple[RequestId, int, tuple[int, ...]], *, quarantine: bool) -> None:
        reservation_id = self.transfers[key].reservation.reservation_id
        self.decode.engine.release_reservation(reservation_id, quarantine=quarantine)
        if quarantine:
            self.quarantined.append(reservation_id)
        self.end_transfer(key)

    def step_decode(self) -> None:
        step = self.decode.engine.step()
        self.decode.engine.check_integrity()
        self.take_tokens(step)
        for end in step.ends:
            if end.reason is LegEndReason.PREEMPTED:
                self.replan(self.legs[end.request_id], end.choice_indices)

    def move_a_choice(self) -> None:
        """A drain in small: a choice goes on elsewhere with its KV, from device or host, if there is room for it."""
        running = [key for key in self.outputs if key not in self.done]
        if not running:
            return
        request_id, choice_index = self.random.choice(running)
        source, sink = self.random.choice([(self.decode, self.prefill), (self.prefill, self.decode)])
        kept = None
        for attempt in range(self.attempts, 0, -1):
            kept = kept or source.engine.keep(request_id, attempt, choice_index)
        if kept is None:
            return
        source.engine.check_integrity()
        self.attempts += 1
        moved = replace(kept.leg, attempt=self.attempts)
        try:
            reservation = sink.engine.reserve(moved)
        except OverloadedError:
            self.replan(self.legs[request_id], (choice_index,))
        else:
            self.num_moves += 1
            (blocks,), (group,) = kept.blocks, reservation.maps
            for block_id, sink_id, present in zip(blocks.block_ids, group.block_ids, group.present, strict=True):
                if not present:
                    sink.runner.write_block_bytes(sink_id, source.runner.block_bytes(block_id))
            sink.engine.commit(reservation.reservation_id, kept.handed_over.first_tokens, moved.attempt)
        source.engine.release_lease(request_id, kept.leg.attempt, (choice_index,))

    def fail_a_transfer(self) -> None:
        """The push breaks: both ends give up, the router plans again."""
        key = self.random.choice(list(self.transfers))
        leg = self.transfers[key].leg
        self.prefill.engine.cancel(leg.request_id, leg.attempt, leg.choice_indices)
        self.drop_transfer(key, quarantine=self.random.random() < 0.5)
        self.replan(self.legs[leg.request_id], leg.choice_indices)

    def cancel_a_request(self) -> None:
        leg = self.random.choice(list(self.legs.values()))
        self.done.update((leg.request_id, choice_index) for choice_index in leg.choice_indices)
        self.pending = [other for other in self.pending if other.request_id != leg.request_id]
        for host in (self.prefill, self.decode):
            host.engine.cancel(leg.request_id)
        for key in [key for key in self.transfers if key[0] == leg.request_id]:
            self.drop_transfer(key, quarantine=True)
        del self.legs[leg.request_id]

    def run(self) -> None:
        num_made = 0
        for _ in range(5000):
            if num_made < NUM_REQUESTS and self.random.random() < 0.3:
                self.pending.append(self.make_leg(num_made))
                num_made += 1
            self.pending = [leg for leg in self.pending if not self.start(leg)]
            self.step_prefill()
            self.step_decode()
            if self.transfers and self.random.random() < 0.03:
                self.fail_a_transfer()
            if self.random.random() < 0.1:
                self.move_a_choice()
            if self.legs and num_made < NUM_REQUESTS and self.random.random() < 0.02:
                self.cancel_a_request()
            if self.random.random() < 0.01:
                self.decode.engine.reset_prefix_cache()
            if self.quarantined and self.random.random() < 0.2:
                self.decode.engine.end_quarantine(self.quarantined.pop())
            working = self.prefill.engine.has_work() or self.decode.engine.has_work()
            if num_made == NUM_REQUESTS and not (working or self.pending or self.transfers or self.quarantined):
                return
        raise AssertionError("the work does not end")


@pytest.mark.parametrize("num_host_blocks", [0, 3, 40])
@pytest.mark.parametrize("seed", range(6))
def test_every_choice_gets_its_tokens_and_every_block_comes_back(seed: int, num_host_blocks: int) -> None:
    fleet = Fleet(seed, num_host_blocks)
    fleet.run()
    for leg in fleet.legs.values():
        for choice_index in leg.choice_indices:
            assert fleet.outputs[leg.request_id, choice_index] == expected_outputs(leg, choice_index, 96)
    for host in (fleet.prefill, fleet.decode):
        integrity = host.engine.check_integrity()
        assert integrity.num_free_blocks == integrity.num_blocks
        assert (integrity.num_reservations, integrity.num_requests, integrity.num_used_host_blocks) == (0, 0, 0)
    load = fleet.decode.engine.load()
    assert fleet.num_moves > 0
    if num_host_blocks < 40:
        assert load.num_preemptions > 0, "blocks were not short enough to test anything"
    if num_host_blocks:
        assert load.swapped_out_blocks > 0 and load.swapped_in_blocks > 0
    if num_host_blocks == 40:
        assert load.num_preemptions == 0, "the host had room for all"
