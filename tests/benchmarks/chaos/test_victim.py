"""What counts as struck: only what was in the stage before the strike and had not left it after."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.chaos.cell import Fault, Stage, Strike, Target
from benchmarks.chaos.observer import Look, Seen
from benchmarks.chaos.victim import Victim, struck_stages
from protos import admin_pb2 as pb

FROZEN_DECODE = Victim(strike=Strike(Fault.FREEZE, Target.DECODE), decode_worker="decode-0")
FROZEN_PREFILL = Victim(strike=Strike(Fault.KILL, Target.PREFILL), prefill_worker="prefill-0")
FROZEN_ROUTER = Victim(strike=Strike(Fault.KILL, Target.ROUTER), router="router-0")
CUT_DECODE = Victim(strike=Strike(Fault.CUT, Target.DECODE), decode_worker="decode-0")


def seen(*stages: Stage, router_stage: pb.RequestStage | None = None, **fields: Any) -> Seen:
    places = {"attempt": 1, "router": "router-0", "prefill_worker": "prefill-0", "decode_worker": "decode-0"}
    return Seen(stages={*stages}, router_stage=router_stage, **{**places, **fields})


def struck(victim: Victim, before: Seen, after: Seen | None, **prefilling: set[str]) -> set[Stage]:
    looks = [
        Look(
            seen={} if one is None else {"r": one}, prefilling={key: frozenset(ids) for key, ids in prefilling.items()}
        )
        for one in (before, after)
    ]
    return set(struck_stages(victim, *looks))


def test_a_request_that_stayed_where_it_was() -> None:
    assert struck(CUT_DECODE, seen(Stage.MAPPED), seen(Stage.MAPPED)) == {Stage.MAPPED}


def test_a_request_that_moved_on_meanwhile() -> None:
    assert struck(CUT_DECODE, seen(Stage.MAPPED), seen(Stage.SENDING)) == set()
    assert struck(CUT_DECODE, seen(Stage.MAPPED), None) == set()


@pytest.mark.parametrize("place", [{"decode_worker": "decode-1"}, {"decode_worker": None}])
def test_a_request_of_another_worker(place: dict[str, Any]) -> None:
    assert struck(CUT_DECODE, seen(Stage.MAPPED, **place), seen(Stage.MAPPED, **place)) == set()


def test_a_queued_request_depends_on_every_worker() -> None:
    queued = seen(Stage.QUEUED, prefill_worker=None, decode_worker=None)
    assert struck(CUT_DECODE, queued, queued) == {Stage.QUEUED}


def test_what_waits_at_a_drained_worker_is_handed_back() -> None:
    drained = Victim(strike=Strike(Fault.DRAIN, Target.PREFILL), prefill_worker="prefill-0")
    before = seen(Stage.WAITING, router_stage=pb.REQUEST_STAGE_PREFILLING)
    assert struck(drained, before, seen(router_stage=pb.REQUEST_STAGE_RESERVING, attempt=2)) == {Stage.WAITING}
    assert struck(drained, before, seen(Stage.QUEUED, router_stage=pb.REQUEST_STAGE_QUEUED, attempt=0)) == {
        Stage.WAITING
    }
    known_to_the_worker_alone = seen(Stage.DRAINING, router_stage=pb.REQUEST_STAGE_PREFILLING)
    assert struck(drained, before, known_to_the_worker_alone) == {Stage.WAITING}
    begun = seen(Stage.DRAINING, Stage.PREFILLING, router_stage=pb.REQUEST_STAGE_PREFILLING)
    assert struck(drained, before, begun) == set()
    assert struck(drained, before, seen(Stage.DRAINING, router_stage=pb.REQUEST_STAGE_HANDING_OVER)) == set()


def test_of_what_a_frozen_worker_holds_its_router_must_know_nothing_newer() -> None:
    before = seen(Stage.SENDING, router_stage=pb.REQUEST_STAGE_PREFILLING)
    assert struck(FROZEN_DECODE, before, seen(router_stage=pb.REQUEST_STAGE_HANDING_OVER)) == {Stage.SENDING}
    assert struck(FROZEN_DECODE, before, seen(router_stage=pb.REQUEST_STAGE_DECODING)) == set()
    assert struck(FROZEN_DECODE, before, seen(router_stage=pb.REQUEST_STAGE_PREFILLING, attempt=2)) == set()


def test_what_others_tell_is_not_taken_from_before() -> None:
    before = seen(Stage.PREFILLING, Stage.EARLY, router_stage=pb.REQUEST_STAGE_PREFILLING)
    assert struck(FROZEN_DECODE, before, seen(router_stage=pb.REQUEST_STAGE_PREFILLING)) == set()
    assert struck(FROZEN_PREFILL, before, seen(router_stage=pb.REQUEST_STAGE_PREFILLING)) == {Stage.PREFILLING}


def test_a_frozen_router_keeps_what_it_has() -> None:
    before = seen(Stage.EARLY, Stage.COMMITTED, router_stage=pb.REQUEST_STAGE_DECODING)
    assert struck(FROZEN_ROUTER, before, seen()) == {Stage.EARLY}


def test_one_waits_for_its_turn_as_long_as_those_before_it_draw_nothing() -> None:
    def looks(ahead_stage: pb.RequestStage) -> set[Stage]:
        waiting = seen(Stage.WAITING, router_stage=pb.REQUEST_STAGE_PREFILLING)
        ahead = seen(router_stage=ahead_stage)
        prefilling = {"prefill-0": frozenset({"ahead"})}
        before = Look(seen={"r": waiting, "ahead": ahead}, prefilling=prefilling)
        after = Look(seen={"r": seen(router_stage=pb.REQUEST_STAGE_PREFILLING), "ahead": ahead}, prefilling={})
        return set(struck_stages(FROZEN_PREFILL, before, after))

    assert looks(pb.REQUEST_STAGE_PREFILLING) == {Stage.WAITING}
    assert looks(pb.REQUEST_STAGE_HANDING_OVER) == set()
