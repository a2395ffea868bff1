"""A router's planning over a fleet of workers that only exist in its books: all that a plan reads is real."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence

from common.config import IndexConfig, Role
from common.cost import StepTimes
from common.kv.block_key import BlockKey
from common.request import RequestId, SamplingParams, WorkerId
from router.admission import AdmittedRequest
from router.background import Background
from router.decision_log import DecisionLog
from router.generation import GenerateCommand, TokenPrompt
from router.index_view import IndexView
from router.metrics import RouterMetrics
from router.planning.books import Books
from router.planning.planner import Planner, PlannerSettings
from router.planning.worker_account import WorkerAccount
from router.policy import select_policy
from router.request_planner import RequestPlanner
from router.worker_info import WorkerInfo, WorkerLoad

TIMES = StepTimes(
    step_s=5e-3,
    prefill_token_s=4e-5,
    prefill_pair_s=1e-9,
    decode_request_s=1e-4,
    decode_kv_token_s=1e-8,
    num_steps=1000,
)


class PlannedFleet:
    """Half of the workers prefill, half decode."""

    def __init__(
        self, books: Books, planner: RequestPlanner, view: IndexView, background: Background, num_tokens: int
    ) -> None:
        self._books = books
        self._planner = planner
        self._view = view
        self._background = background
        self._numbers = itertools.count()
        self._worker = next(iter(books.roster)).info
        self._token_ids = tuple(range(num_tokens))

    async def plan_one(self, point_keys: Sequence[BlockKey]) -> None:
        """What the router does for a request until the leg is sent, and the books when it has ended."""
        request = self._request(point_keys)
        planned = self._planner.begin(request)
        plan = await self._planner.plan(planned, num_done_tokens=0, excluded=frozenset())
        assert plan is not None
        booking = self._planner.book(planned, plan)
        decode = plan.decode[0].candidate.worker_id
        booking.ask_decode(decode)
        booking.decode_granted(decode)
        booking.submitted()
        now_s = time.monotonic()
        booking.computed(now_s)
        booking.committed(now_s)
        booking.close()

    async def close(self) -> None:
        await self._background.close()
        await self._view.close()

    def _request(self, point_keys: Sequence[BlockKey]) -> AdmittedRequest:
        number = next(self._numbers)
        sampling = SamplingParams(max_tokens=100, seed=number)
        return AdmittedRequest(
            request_id=RequestId(f"request-{number}"),
            command=GenerateCommand(
                request_id=f"request-{number}", prompt=TokenPrompt(token_ids=()), sampling=sampling
            ),
            worker=self._worker,
            prompt_token_ids=self._token_ids,
            prompt_digest=bytes(16),
            sampling=sampling,
            cache_salt=b"",
            point_keys=tuple(point_keys),
            arrival_s=time.monotonic(),
            deadline_s=None,
        )


async def planned_fleet(config: IndexConfig, num_workers: int, num_tokens: int) -> PlannedFleet:
    """A fleet of `num_workers`, worker-0000 and so on, for prompts of `num_tokens`."""
    books = Books()
    draw = random.Random(num_workers)
    for number in range(num_workers):
        account = WorkerAccount(_info(number, config.index_stride))
        account.available = True
        account.take_report(_load(draw), time.monotonic())
        books.roster.update(account)
    view, background = IndexView(config, books.roster), Background()
    view.start()
    planner = RequestPlanner(
        planner=Planner(books.roster, select_policy("prefix_aware"), draw, PlannerSettings()),
        books=books,
        lookup=view,
        background=background,
        metrics=RouterMetrics(),
        decisions=DecisionLog(),
    )
    return PlannedFleet(books, planner, view, background, num_tokens)


def _info(number: int, stride: int) -> WorkerInfo:
    return WorkerInfo(
        worker_id=WorkerId(f"worker-{number:04}"),
        incarnation=1,
        role=Role.DECODE if number % 2 else Role.PREFILL,
        address=f"10.0.0.1:{number + 1}",
        model="model",
        max_model_len=131_072,
        vocab_size=128_000,
        eos_token_ids=(0,),
        block_size=16,
        num_bytes_per_block=16 * 131_072,
        key_root=bytes(16),
        layout_fingerprint=bytes(16),
        index_stride=stride,
        draining=False,
        backend="none",
    )


def _load(draw: random.Random) -> WorkerLoad:
    return WorkerLoad(
        num_running=draw.randrange(32),
        num_waiting=draw.randrange(3),
        num_blocks=30_000,
        num_free_blocks=draw.randrange(2000, 30_000),
        max_num_seqs=256,
        num_running_tokens=draw.randrange(100_000),
        queue_s=draw.random(),
        busy_s=draw.random() * 100,
        num_routers=1,
        step_times=TIMES,
    )
