"""A request that makes a step raise, wherever it does, fails alone; all others go on exactly."""

import random
from collections.abc import Callable, Sequence

import pytest

from common.engine.results import LegEnded, LegEndReason
from common.engine.sampled_token import SampledToken, SequenceResult
from common.engine.scheduler_config import SchedulerConfig
from common.engine.scheduler_output import ScheduledSequence
from common.errors import EngineError, Status
from common.request import Leg, RequestId
from tests.support.engine import HashEngine, expected_outputs, make_leg

Change = Callable[[SequenceResult], SequenceResult]


class Uncountable(int):
    """A token until it is looked up."""

    __hash__ = None  # type: ignore[assignment]


class Unforeseen:
    """No runner returns it."""


def raise_in_step(result: SequenceResult) -> SequenceResult:
    raise RuntimeError("poison")


# What a runner might return that it never should, by where it hurts.
CHANGES: dict[str, Change] = {
    "the runner raises": raise_in_step,
    "its numbers are not finite": lambda result: result._replace(error="the numbers are not finite"),
    "no token": lambda result: result._replace(tokens=()),
    "a negative token": lambda result: result._replace(tokens=(SampledToken(-1),) * len(result.tokens)),
    "no token at all": lambda result: result._replace(tokens=(Unforeseen(),)),  # type: ignore[arg-type]
    "logprobs of no kind": lambda result: result._replace(prompt_logprobs=Unforeseen()),  # type: ignore[arg-type]
    "no result": lambda result: Unforeseen(),  # type: ignore[return-value,arg-type]
}


def is_poisoned(leg: Leg) -> bool:
    return leg.request_id.startswith("poison")


def poison(host: HashEngine, change: Change, from_step: int) -> None:
    """From its step number `from_step` on (0: the first that samples), results of poisoned requests are changed."""
    seen: dict[RequestId, int] = {}

    def after(entry: ScheduledSequence, result: SequenceResult) -> SequenceResult:
        leg = entry.sequence.leg
        if not is_poisoned(leg) or not entry.samples:
            return result
        seen[leg.request_id] = seen.get(leg.request_id, -1) + 1
        return change(result) if seen[leg.request_id] >= from_step else result

    host.runner.after_execute = after


def ends_of(host: HashEngine) -> list[LegEnded]:
    return [end for step in host.steps for end in step.ends]


def assert_failed_alone(host: HashEngine, legs: Sequence[Leg]) -> None:
    failed: set[tuple[RequestId, int]] = set()
    for end in ends_of(host):
        assert (end.reason, end.status) == (LegEndReason.FAILED, Status.INTERNAL)
        assert end.message
        for choice_index in end.choice_indices:
            assert (end.request_id, choice_index) not in failed, "told once"
            failed.add((end.request_id, choice_index))
    assert failed == {(leg.request_id, index) for leg in legs if is_poisoned(leg) for index in leg.choice_indices}
    for leg in legs:
        for choice_index in leg.choice_indices:
            expected = expected_outputs(leg, choice_index, host.max_model_len)
            outputs = host.outputs.get((leg.request_id, choice_index), [])
            assert outputs == (expected[: len(outputs)] if is_poisoned(leg) else expected)
    integrity = host.engine.check_integrity()
    assert integrity.num_free_blocks == integrity.num_blocks
    assert integrity.num_requests == 0


@pytest.mark.parametrize("from_step", [0, 1, 5])
@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_it_fails_alone_wherever_it_raises(change: Change, num_choices: int, from_step: int) -> None:
    host = HashEngine()
    legs = [
        make_leg(range(12), request_id="a", choices=2, max_tokens=20),
        make_leg(range(11), request_id="poison", choices=num_choices, max_tokens=20),
        make_leg([*range(12), 7], request_id="b", max_tokens=20),
    ]
    poison(host, change, from_step)
    for leg in legs:
        host.engine.submit(leg)
    host.run()
    if num_choices == 1 or from_step == 0:
        assert_failed_alone(host, legs)
        return
    # Choices that parted are several sequences: each step counts for one of them.
    failed = {index for end in ends_of(host) for index in end.choice_indices}
    assert failed
    assert all(end.request_id == "poison" for end in ends_of(host))
    for leg in (legs[0], legs[2]):
        for choice_index in leg.choice_indices:
            expected = expected_outputs(leg, choice_index, host.max_model_len)
            assert host.outputs[leg.request_id, choice_index] == expected
    integrity = host.engine.check_integrity()
    assert integrity.num_free_blocks == integrity.num_blocks


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_one_that_was_to_be_handed_over_leaves_nothing_but_its_lease(change: Change) -> None:
    host = HashEngine(config=SchedulerConfig(max_num_batched_tokens=16))
    poison(host, change, 0)
    host.engine.submit(make_leg(range(40), request_id="poison", choices=2), hand_over=True)
    host.run()
    assert [end.reason for end in ends_of(host)] == [LegEndReason.FAILED]
    assert host.results("handed_over") == []
    assert host.outputs == {}
    host.engine.release_lease(RequestId("poison"), 1)
    integrity = host.engine.check_integrity()
    assert integrity.num_free_blocks == integrity.num_blocks
    assert integrity.num_requests == 0


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_nobody_reuses_what_the_failed_step_computed(change: Change) -> None:
    host = HashEngine()
    poison(host, change, 0)
    prompt = range(32)
    host.engine.submit(make_leg(prompt, request_id="poison"))
    host.run()
    assert [end.reason for end in ends_of(host)] == [LegEndReason.FAILED]
    assert host.kv.pool.num_cached_blocks == 0
    host.runner.slots[:] = 0  # whatever it left there
    leg = make_leg(prompt, request_id="after")
    host.engine.submit(leg)
    host.run()
    assert host.engine.load().prefix_hit_tokens == 0
    assert host.outputs[leg.request_id, 0] == expected_outputs(leg, 0, host.max_model_len)


@pytest.mark.parametrize("num_requests", [1, 3])
def test_a_runner_that_computes_nothing_any_more_is_no_request_s_fault(num_requests: int) -> None:
    host = HashEngine()
    for index in range(num_requests):
        host.engine.submit(make_leg(range(12), request_id=f"r{index}"))
    host.step()

    def lose_the_device(scheduled: Sequence[ScheduledSequence]) -> None:
        raise RuntimeError("the device is lost")

    host.runner.before_execute = lose_the_device
    with pytest.raises(EngineError, match=r"can't compute anything any more.*the device is lost"):
        host.engine.step()


def test_a_runner_that_loses_a_result_is_asked_for_each_alone() -> None:
    host = HashEngine()
    execute = host.runner.execute
    host.runner.execute = lambda scheduled: execute(scheduled)[: 1 if len(scheduled) > 1 else None]  # type: ignore[method-assign]
    legs = [make_leg(range(12), request_id=name) for name in "abc"]
    for leg in legs:
        host.engine.submit(leg)
    host.run()
    assert_failed_alone(host, legs)


def test_choices_that_can_not_all_be_made_are_not_made_at_all() -> None:
    host = HashEngine()

    def break_the_leg(entry: ScheduledSequence, result: SequenceResult) -> SequenceResult:
        # The first choice is made before the second's token is counted for its penalties.
        leg = entry.sequence.leg
        if leg.request_id == "poison":
            first, second = result.tokens
            return result._replace(tokens=(first, second._replace(token_id=Uncountable(second.token_id))))
        return result

    host.runner.after_execute = break_the_leg
    legs = [
        make_leg(range(20), request_id=name, choices=2, max_tokens=10, min_tokens=5, presence_penalty=0.5)
        for name in ("poison", "a")
    ]
    for leg in legs:
        host.engine.submit(leg)
    host.run()
    assert_failed_alone(host, legs)


@pytest.mark.parametrize("seed", range(20))
def test_random_poison_among_random_requests(seed: int) -> None:
    source = random.Random(seed)
    host = HashEngine(
        num_blocks=24,
        num_host_blocks=source.choice([0, 30]),
        config=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=24, max_num_waiting=40),
        max_model_len=96,
    )
    changes = list(CHANGES.values())

    def after(entry: ScheduledSequence, result: SequenceResult) -> SequenceResult:
        return source.choice(changes)(result) if is_poisoned(entry.sequence.leg) else result

    host.runner.after_execute = after
    legs = []
    for index in range(30):
        prompt = [*range(source.randint(1, 30)), 300 + index]
        kind = source.choice(["poison", "fine", "fine"])
        choices = source.choice([1, 1, 2, 3])
        legs.append(
            make_leg(
                prompt, request_id=f"{kind}-{index}", choices=choices, max_tokens=source.randint(1, 30), seed=index
            )
        )
        host.engine.submit(legs[-1])
        host.step()
    host.run()
    fine = [leg for leg in legs if not is_poisoned(leg)]
    assert all(is_poisoned(leg) for leg in legs if any(end.request_id == leg.request_id for end in ends_of(host)))
    for leg in fine:
        for choice_index in leg.choice_indices:
            assert host.outputs[leg.request_id, choice_index] == expected_outputs(leg, choice_index, 96)
    integrity = host.engine.check_integrity()
    assert integrity.num_free_blocks == integrity.num_blocks
    assert (integrity.num_requests, integrity.num_used_host_blocks) == (0, 0)
