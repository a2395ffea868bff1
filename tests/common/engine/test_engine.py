from collections.abc import Sequence
from dataclasses import replace

import pytest

from common.engine.results import LegEndReason, TokenOutput
from common.engine.scheduler_config import SchedulerConfig
from common.engine.scheduler_output import ScheduledSequence
from common.errors import InvalidRequestError, OverloadedError, Status
from common.kv.cache_event import CacheEventKind
from common.request import FinishReason, Leg, RequestId
from tests.support.engine import EOS_TOKEN_ID, VOCAB_SIZE, HashEngine, expected_outputs, make_leg


def run_alone(host: HashEngine, leg: Leg) -> list[int]:
    host.engine.submit(leg)
    host.run()
    return host.outputs[leg.request_id, leg.choice_indices[0]]


def last_token(host: HashEngine) -> TokenOutput:
    return host.steps[-1].tokens[-1]


def assert_all_blocks_free(host: HashEngine) -> None:
    integrity = host.engine.check_integrity()
    assert integrity.num_free_blocks == integrity.num_blocks
    assert (integrity.num_reservations, integrity.num_requests) == (0, 0)


def test_a_leg_runs_to_its_length() -> None:
    host = HashEngine()
    leg = make_leg(range(20), max_tokens=9)
    assert run_alone(host, leg) == expected_outputs(leg, 0, host.max_model_len)
    assert last_token(host).finish_reason is FinishReason.LENGTH
    assert last_token(host).stop_token_id is None
    assert_all_blocks_free(host)


def test_a_stop_token_ends_a_leg_and_is_told() -> None:
    host = HashEngine()
    leg = make_leg(range(20), max_tokens=20)
    stop = expected_outputs(leg, 0, host.max_model_len)[4]
    leg = replace(leg, sampling=replace(leg.sampling, stop_token_ids=(stop,)))
    assert len(run_alone(host, leg)) == 5
    assert (last_token(host).finish_reason, last_token(host).stop_token_id) == (FinishReason.STOP, stop)


def test_end_of_sequence_ends_a_leg_unless_ignored() -> None:
    # A prompt whose 1st to 50th output is the end-of-sequence token, found by search.
    host = HashEngine(num_blocks=128)
    for first in range(VOCAB_SIZE):
        leg = make_leg([first], request_id=f"r{first}", max_tokens=50)
        outputs = expected_outputs(leg, 0, host.max_model_len)
        if outputs[-1] == EOS_TOKEN_ID and len(outputs) < 50:
            break
    assert run_alone(host, leg) == outputs
    assert (last_token(host).finish_reason, last_token(host).stop_token_id) == (FinishReason.STOP, None)
    ignoring = make_leg([first], request_id="ignoring", max_tokens=50, ignore_eos=True)
    assert len(run_alone(host, ignoring)) == 50


def test_the_models_length_ends_a_leg() -> None:
    host = HashEngine(max_model_len=30)
    leg = make_leg(range(20), max_tokens=None, ignore_eos=True)
    assert len(run_alone(host, leg)) == 10
    assert last_token(host).finish_reason is FinishReason.LENGTH


def test_tokens_so_far_are_computed_and_continued() -> None:
    host = HashEngine()
    leg = make_leg(range(20), max_tokens=9)
    outputs = expected_outputs(leg, 0, host.max_model_len)
    resumed = make_leg(range(20), outputs=outputs[:4], attempt=2, max_tokens=9)
    assert run_alone(host, resumed)[4:] == outputs[4:]
    assert host.steps[0].tokens[0].first_index == 4


def test_choices_share_the_prompt_and_go_their_own_way() -> None:
    host = HashEngine()
    leg = make_leg(range(20), choices=4, max_tokens=9)
    host.engine.submit(leg)
    host.step()
    assert host.engine.load().num_prefilled_tokens == 20
    host.step()
    assert host.kv.pool.num_used_blocks == 2 + 4, "two full blocks shared, the partial one copied on write"
    host.run()
    for choice_index in range(4):
        assert host.outputs[leg.request_id, choice_index] == expected_outputs(leg, choice_index, host.max_model_len)
    assert len({tuple(host.outputs[leg.request_id, choice_index]) for choice_index in range(4)}) == 4
    assert_all_blocks_free(host)


def test_the_start_is_told_once_with_the_first_token() -> None:
    host = HashEngine(config=SchedulerConfig(max_num_batched_tokens=8))
    host.engine.submit(make_leg(range(20), choices=2))
    host.now = 2.0
    host.runner.before_execute = lambda output: setattr(host, "now", host.now + 1.0)
    host.run()
    starts = [output.start for step in host.steps for output in step.tokens if output.start is not None]
    assert len(starts) == 1
    assert (starts[0].queue_s, starts[0].prefill_s, starts[0].cached_tokens) == (2.0, 3.0, 0)


def test_a_cached_prefix_is_reused_and_counted() -> None:
    host = HashEngine()
    run_alone(host, make_leg(range(32), request_id="a", max_tokens=9))
    leg = make_leg([*range(24), 500, 501], request_id="b")
    assert run_alone(host, leg) == expected_outputs(leg, 0, host.max_model_len)
    start = next(output.start for step in host.steps for output in step.tokens if output.request_id == "b")
    assert start is not None
    assert start.cached_tokens == 24


def test_generated_blocks_are_cached_too() -> None:
    host = HashEngine()
    leg = make_leg(range(20), request_id="a", max_tokens=13)
    outputs = run_alone(host, leg)
    run_alone(host, make_leg([*range(20), *outputs], request_id="b"))
    assert host.engine.load().prefix_hit_tokens == 32


def test_prompt_logprobs_bypass_the_cache() -> None:
    host = HashEngine()
    run_alone(host, make_leg(range(32), request_id="a"))
    run_alone(host, make_leg(range(32), request_id="b", prompt_logprobs=1))
    assert host.engine.load().prefix_hit_tokens == 0


def test_salts_keep_tenants_apart() -> None:
    host = HashEngine()
    run_alone(host, make_leg(range(32), request_id="a", cache_salt=b"one"))
    run_alone(host, make_leg(range(32), request_id="b", cache_salt=b"two"))
    assert host.engine.load().prefix_hit_tokens == 0


def test_preemption_recomputes_in_place_without_a_trace() -> None:
    host = HashEngine(num_blocks=10)
    legs = [make_leg(range(first, first + 12), request_id=f"r{first}", max_tokens=30) for first in (0, 100, 200)]
    for leg in legs:
        host.engine.submit(leg)
    host.run()
    assert host.engine.load().num_preemptions > 0
    for leg in legs:
        assert host.outputs[leg.request_id, 0] == expected_outputs(leg, 0, host.max_model_len)
    assert_all_blocks_free(host)


def test_preemption_hands_back_where_it_must() -> None:
    host = HashEngine(num_blocks=6, hand_back=True)
    legs = [make_leg(range(first, first + 12), request_id=f"r{first}", max_tokens=24) for first in (0, 100)]
    for leg in legs:
        host.engine.submit(leg)
    host.run()
    (end,) = [end for step in host.steps for end in step.ends]
    assert (end.request_id, end.reason, end.choice_indices) == ("r100", LegEndReason.PREEMPTED, (0,))
    assert host.outputs[legs[0].request_id, 0] == expected_outputs(legs[0], 0, host.max_model_len)
    assert_all_blocks_free(host)


def test_cancel_frees_everything_before_the_next_step() -> None:
    host = HashEngine()
    host.engine.submit(make_leg(range(20), choices=3))
    host.step()
    host.engine.cancel(RequestId("r"))
    host.engine.cancel(RequestId("r"))
    assert_all_blocks_free(host)
    assert host.engine.has_work(), "the endings are to be told"
    step = host.step()
    assert step.num_scheduled_tokens == 0
    assert sorted(end.choice_indices for end in step.ends) == [(0,), (1,), (2,)]
    assert {end.reason for end in step.ends} == {LegEndReason.CANCELLED}
    assert not host.engine.has_work()


def test_single_choices_can_be_cancelled_even_before_they_part() -> None:
    host = HashEngine()
    leg = make_leg(range(20), choices=3, max_tokens=5)
    host.engine.submit(leg)
    host.engine.cancel(RequestId("r"), 1, (1,))
    host.step()
    host.engine.cancel(RequestId("r"), 1, (2,))
    host.run()
    assert host.outputs[leg.request_id, 0] == expected_outputs(leg, 0, host.max_model_len)
    assert (leg.request_id, 1) not in host.outputs
    assert len(host.outputs[leg.request_id, 2]) == 1


def test_cancels_of_another_attempt_are_dropped() -> None:
    host = HashEngine()
    leg = make_leg(range(20), attempt=2)
    host.engine.submit(leg)
    host.engine.cancel(RequestId("r"), 1)
    host.run()
    assert host.outputs[leg.request_id, 0] == expected_outputs(leg, 0, host.max_model_len)


def test_a_newer_attempt_ends_the_older_and_not_the_reverse() -> None:
    host = HashEngine()
    host.engine.submit(make_leg(range(20), attempt=2))
    host.engine.submit(make_leg(range(30), attempt=3))
    for attempt in (2, 3):
        with pytest.raises(InvalidRequestError, match="attempt"):
            host.engine.submit(make_leg(range(20), attempt=attempt))
    host.run()
    assert [end.attempt for step in host.steps for end in step.ends] == [2]


def test_a_deadline_ends_a_leg_with_its_status() -> None:
    host = HashEngine()
    host.engine.submit(make_leg(range(20), deadline_s=5.0, max_tokens=100))
    host.step()
    host.now = 5.0
    (end,) = host.step().ends
    assert (end.reason, end.status) == (LegEndReason.DEADLINE, Status.DEADLINE_EXCEEDED)
    assert_all_blocks_free(host)


def test_a_full_queue_refuses() -> None:
    host = HashEngine(config=SchedulerConfig(max_num_waiting=2))
    for index in range(2):
        host.engine.submit(make_leg(range(8), request_id=f"r{index}"))
    with pytest.raises(OverloadedError):
        host.engine.submit(make_leg(range(8), request_id="r2"))


@pytest.mark.parametrize(
    ("leg", "field"),
    [
        (make_leg(range(64)), "prompt"),
        (make_leg([VOCAB_SIZE]), "prompt"),
        (make_leg([-1]), "prompt"),
        (make_leg([1], choices=17), "n"),
        (make_leg([1], logit_bias={VOCAB_SIZE: 1.0}), "logit_bias"),
        (make_leg([1], stop_token_ids=(-5,)), "stop_token_ids"),
    ],
)
def test_bad_legs_are_refused_by_field(leg: Leg, field: str) -> None:
    host = HashEngine(max_model_len=64)
    for take in (host.engine.submit, host.engine.reserve):
        with pytest.raises(InvalidRequestError) as caught:
            take(leg)
        assert caught.value.field == field
    assert_all_blocks_free(host)


def test_a_step_that_raises_fails_only_the_one_to_blame() -> None:
    host = HashEngine()
    legs = [make_leg(range(first, first + 20), request_id=f"r{first}") for first in (0, 100, 200)]
    for leg in legs:
        host.engine.submit(leg)
    host.step()

    def explode(scheduled: Sequence[ScheduledSequence]) -> None:
        if any(entry.sequence.leg.request_id == "r100" for entry in scheduled):
            raise RuntimeError("poison")

    host.runner.before_execute = explode
    host.run()
    (end,) = [end for step in host.steps for end in step.ends]
    assert (end.request_id, end.reason, end.status) == ("r100", LegEndReason.FAILED, Status.INTERNAL)
    assert "poison" in end.message
    for leg in (legs[0], legs[2]):
        assert host.outputs[leg.request_id, 0] == expected_outputs(leg, 0, host.max_model_len)
    assert_all_blocks_free(host)


def test_an_empty_step_is_harmless() -> None:
    host = HashEngine()
    step = host.step()
    assert (step.tokens, step.ends, step.num_scheduled_tokens) == ([], [], 0)


def test_resetting_the_prefix_cache_forgets_it_and_says_so() -> None:
    host = HashEngine()
    run_alone(host, make_leg(range(32), request_id="a"))
    assert {event.kind for event in host.engine.drain_cache_events()} == {CacheEventKind.STORED}
    assert host.engine.reset_prefix_cache() == 4
    assert [event.kind for event in host.engine.drain_cache_events()] == [CacheEventKind.CLEARED]
    run_alone(host, make_leg(range(32), request_id="b"))
    assert host.engine.load().prefix_hit_tokens == 0


def test_the_load_counts_what_waits_and_runs() -> None:
    host = HashEngine(config=SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=16))
    for index in range(3):
        host.engine.submit(make_leg(range(100 * index, 100 * index + 20), request_id=f"r{index}"))
    host.step()
    load = host.engine.load()
    assert (load.num_running, load.num_waiting, load.num_waiting_tokens, load.max_num_seqs) == (1, 2, 44, 2)
    assert load.num_prefilled_tokens == 16


def test_probes_teach_nothing_about_the_length_of_answers() -> None:
    host = HashEngine(num_blocks=64)
    expected = host.engine.reserve(make_leg([1], request_id="before", max_tokens=None)).credit_tokens
    for index in range(40):
        probe = replace(make_leg([2], request_id=f"probe-{index}", max_tokens=2), canary=True)
        run_alone(host, probe)
    assert host.engine.reserve(make_leg([1], request_id="after", max_tokens=None)).credit_tokens == expected
    for index in range(40):
        run_alone(host, make_leg([2], request_id=f"short-{index}", max_tokens=2))
    assert host.engine.reserve(make_leg([1], request_id="learned", max_tokens=None)).credit_tokens < expected
