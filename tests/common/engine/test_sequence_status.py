"""An engine tells what it has of each request."""

from __future__ import annotations

from common.engine.scheduler_config import SchedulerConfig
from common.engine.sequence_status import SequenceStage, SequenceStatus
from tests.support.engine import HashEngine, make_leg

CONFIG = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_num_waiting=4)


def by_request(host: HashEngine) -> dict[str, SequenceStatus]:
    return {status.request_id: status for status in host.engine.statuses()}


def test_one_is_between_its_chunks_and_the_next_waits() -> None:
    host = HashEngine(config=CONFIG)
    host.engine.submit(make_leg(range(40), request_id="first"))
    host.engine.submit(make_leg(range(40, 60), request_id="second"))
    host.engine.step()
    told = by_request(host)
    assert (told["first"].stage, told["first"].num_computed_tokens) == (SequenceStage.PREFILLING, 16)
    assert (told["second"].stage, told["second"].num_computed_tokens) == (SequenceStage.QUEUED, 0)
    assert (told["second"].num_prompt_tokens, told["second"].num_output_tokens) == (20, 0)
    host.run()
    assert by_request(host) == {}
    host.engine.check_integrity()


def test_one_decodes() -> None:
    host = HashEngine(config=CONFIG)
    host.engine.submit(make_leg(range(10), max_tokens=8, ignore_eos=True))
    host.engine.step()
    host.engine.step()
    told = by_request(host)["r"]
    assert (told.stage, told.num_output_tokens, told.num_computed_tokens) == (SequenceStage.DECODING, 2, 11)
    host.run()
    host.engine.check_integrity()


def test_one_that_is_handed_over_stays_until_its_blocks_are_released() -> None:
    host = HashEngine(config=CONFIG)
    host.engine.submit(make_leg(range(10), choices=2), hand_over=True)
    host.run()
    told = by_request(host)["r"]
    assert (told.stage, told.choice_indices) == (SequenceStage.HANDING_OVER, (0, 1))
    host.engine.release_lease(told.request_id, told.attempt)
    assert by_request(host) == {}
    host.engine.check_integrity()
