"""Conducts one request: plans its legs, follows them, plans again when a worker fails or hands back.

Indices make delivery exactly-once and draws depend on positions alone, so a choice goes on anywhere with
prompt + tokens so far as its prompt.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from common.errors import DeadlineExceededError, InvalidRequestError, OverloadedError, SlipstreamError, UnavailableError
from common.request import Leg
from router.admission import AdmittedRequest
from router.answer import Answer
from router.background import Background
from router.fleet import Fleet
from router.kept_choice import KeptChoice
from router.leg_attempt import AttemptLostError, LegAttempt, RefusedError
from router.metrics import RouterMetrics
from router.planning.plan import Plan
from router.request_planner import RequestPlanner
from router.waiting_room import REST_S, Pin, Place, WaitingRoom
from router.whereabouts import QUEUED

logger = logging.getLogger(__name__)

# A hand-back is not a failure, but an answer that is handed back at every turn would never end.
MAX_HAND_BACKS = 64
# Within the silence that a killed worker may cost. Streams that broke while this router stood still are back in less.
RETURN_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What conducting needs, the same for all. A fleet whose streams broke is waited for `return_s` seconds."""

    fleet: Fleet
    planner: RequestPlanner
    room: WaitingRoom
    background: Background
    metrics: RouterMetrics
    max_attempts: int
    return_s: float = RETURN_S


class Conductor:
    """One per request. `run` ends when every choice is finished; cancelling it stops the workers."""

    def __init__(self, request: AdmittedRequest, answer: Answer, means: Means) -> None:
        self._request = request
        self._answer = answer
        self._means = means
        self._attempts = itertools.count(1)
        self._planned = means.planner.begin(request)
        # Not asked again while there are others: idle because nothing reaches it, such a worker looks the best.
        self._avoided: frozenset[str] = frozenset()
        self._kept: dict[int, KeptChoice] = {}
        self._taken_s: float | None = None  # monotonic: when a worker first took it

    async def run(self) -> None:
        """Raises DeadlineExceededError, OverloadedError, UnavailableError, or what a worker answered."""
        deadline_s = self._request.deadline_s
        timeout_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        try:
            async with asyncio.timeout(timeout_s) as limit:
                try:
                    await self._run_choices(tuple(range(self._request.sampling.n)))
                finally:
                    for kept in self._kept.values():
                        self._forget(kept)
            self._means.planner.end(self._planned, self._answer)
            self._note_pace()
        except TimeoutError:
            if not limit.expired():
                raise
            assert self._request.command.deadline_s is not None
            limit_ms = round(self._request.command.deadline_s * 1000)
            raise DeadlineExceededError(f"deadline_ms: {limit_ms} ms have passed") from None

    def _note_pace(self) -> None:
        request, answer = self._request, self._answer
        is_ordinary = request.command.resume_from is None and not request.command.canary and answer.attempts == 1
        if self._taken_s is not None and is_ordinary:
            first_s = request.arrival_s + answer.ttft_s - self._taken_s
            num_tokens = max(len(choice.token_ids) for choice in answer.choices)
            self._means.room.pace.note_answer(max(0.0, first_s), answer.tpot_s, num_tokens)

    async def _run_choices(self, choices: tuple[int, ...], num_lost: int = 0) -> None:
        for _ in range(MAX_HAND_BACKS + self._means.max_attempts + 1):
            # Also before the first attempt: an answer may have begun at another router.
            choices = tuple(index for index in choices if not self._answer.choices[index].finished)
            if not choices:
                return
            if len(choices) > 1 and any(self._answer.choices[index].token_ids for index in choices):
                # Choices that have parted go on alone, each with its own tokens.
                await self._run_apart(choices, num_lost)
                return
            try:
                if not (len(choices) == 1 and await self._move(choices[0])):
                    await self._attempt(choices)
            except AttemptLostError as error:
                num_lost += 1
                self._note_loss(error, num_lost)
        raise OverloadedError(f"handed back {MAX_HAND_BACKS} times: the decode workers have too few KV blocks")

    async def _run_apart(self, choices: tuple[int, ...], num_lost: int) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for index in choices:
                    group.create_task(self._run_choices((index,), num_lost))
        except* SlipstreamError as errors:
            raise errors.exceptions[0] from None

    async def _move(self, choice_index: int) -> bool:
        """Whether a choice that its worker keeps went on elsewhere. False: it has to be computed again."""
        kept = self._kept.get(choice_index)
        if kept is None:
            return False
        excluded: frozenset[str] = frozenset()
        with self._place((choice_index,)) as place:
            while (source := self._means.fleet.find(kept.worker_id)) is not None and source.attachment.connected:
                excluded |= {kept.worker_id}
                plan = await self._plan_move(choice_index, excluded | self._avoided)
                if plan is None and self._avoided:
                    plan = await self._plan_move(choice_index, excluded)
                if plan is None:
                    excluded = frozenset()
                    await place.wait_turn(time.monotonic() + REST_S)
                    continue
                try:
                    await self._run_leg(plan, (choice_index,), on_submitted=place.taken, moved=kept)
                    return True
                except RefusedError as error:
                    self._answer.attempts -= 1
                    excluded |= error.worker_ids
        del self._kept[choice_index]
        logger.warning("request %s: %s is gone, and what it kept", self._request.request_id, kept.worker_id)
        return False

    def _forget(self, kept: KeptChoice) -> None:
        source = self._means.fleet.find(kept.worker_id)
        if source is not None:
            source.attachment.cancel(kept.request_id, kept.attempt, (kept.choice_index,))

    async def _plan_move(self, choice_index: int, excluded: frozenset[str]) -> Plan | None:
        num_done_tokens = len(self._answer.choices[choice_index].token_ids) - 1
        return await self._means.planner.plan_move(self._planned, num_done_tokens=num_done_tokens, excluded=excluded)

    async def _attempt(self, choices: tuple[int, ...]) -> None:
        """One attempt that some worker took. Waits in the router's queue while all refuse."""
        excluded: frozenset[str] = frozenset()
        rested_s = 0.0
        with self._place(choices) as place:
            must_wait = place.others_wait
            while True:
                if must_wait:
                    self._note_queued(choices)
                    await place.wait_turn(rested_s)
                plan = await self._plan(choices, excluded | self._avoided)
                if plan is None and self._avoided:
                    plan = await self._plan(choices, excluded)
                must_wait = plan is None
                if plan is None:
                    self._check_reachable()
                    excluded = frozenset()
                    continue
                try:
                    await self._run_leg(plan, choices, on_submitted=place.taken)
                    return
                except RefusedError as error:
                    self._answer.attempts -= 1  # nobody took it
                    excluded |= error.worker_ids
                    rested_s = time.monotonic() + REST_S

    def _check_reachable(self) -> None:
        """Raises when waiting would be in vain. Streams that have just broken may come back: this router, or a whole
        side, stood still for a moment. One worker that is pinned is not waited for."""
        route = self._request.command.route
        try:
            self._means.planner.check_reachable(self._request)
        except UnavailableError:
            is_pinned = route.prefill_worker is not None or route.decode_worker is not None
            if is_pinned or not self._means.fleet.lost_within(self._means.return_s):
                raise

    def _note_queued(self, choices: tuple[int, ...]) -> None:
        for index in choices:
            self._answer.choices[index].whereabouts = QUEUED

    def _place(self, choices: tuple[int, ...]) -> AbstractContextManager[Place]:
        command = self._request.command
        return self._means.room.place(
            command.priority,
            self._request.arrival_s,
            pin=Pin(command.route.prefill_worker, command.route.decode_worker),
            begun=bool(self._answer.choices[choices[0]].token_ids),
        )

    async def _plan(self, choices: tuple[int, ...], excluded: frozenset[str]) -> Plan | None:
        num_done_tokens = len(self._answer.choices[choices[0]].token_ids)
        try:
            return await self._means.planner.plan(self._planned, num_done_tokens=num_done_tokens, excluded=excluded)
        except InvalidRequestError as error:
            if self._planned.decision.plans:
                # What it asks for was there when it came.
                raise UnavailableError(f"a worker that the request asks for has left: {error}") from error
            raise

    async def _run_leg(
        self,
        plan: Plan,
        choices: tuple[int, ...],
        on_submitted: Callable[[], None],
        moved: KeptChoice | None = None,
    ) -> None:
        request = self._request
        output_token_ids = self._answer.choices[choices[0]].token_ids if len(choices) == 1 else []
        if moved is not None:
            output_token_ids = output_token_ids[:-1]  # the last one's KV was never computed: it goes with the commit
        leg = Leg(
            request_id=request.request_id,
            attempt=next(self._attempts),
            choice_indices=choices,
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=tuple(output_token_ids),
            sampling=request.sampling,
            priority=request.command.priority,
            deadline_s=request.deadline_s,
            cache_salt=request.cache_salt,
            canary=request.command.canary,
            expected_cached_tokens=plan.num_cached_tokens,
        )
        means = self._means
        self._answer.attempts += 1
        booking = means.planner.book(self._planned, plan)
        attempt = LegAttempt(
            leg,
            plan,
            booking,
            self._answer,
            means.fleet,
            means.background,
            may_move=request.command.route.decode_worker is None,
            moved=moved,
        )

        def submitted() -> None:
            on_submitted()
            self._taken_s = self._taken_s or time.monotonic()
            if moved is not None:
                del self._kept[moved.choice_index]  # the attempt's own from here on

        try:
            await attempt.run(submitted)
        finally:
            self._kept |= attempt.kept

    def _note_loss(self, error: AttemptLostError, num_lost: int) -> None:
        self._avoided |= {error.worker_id}
        logger.warning("request %s: attempt lost: %s", self._request.request_id, error)
        self._means.metrics.count_lost_attempt(self._request.command)
        if num_lost >= self._means.max_attempts:
            raise UnavailableError(f"gave up after {num_lost} attempts; the last: {error}") from error
