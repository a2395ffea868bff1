"""The router's core over scripted workers: one prefill worker and two decode workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.config import Role
from common.request import SamplingParams
from protos import worker_pb2
from router.admission import Admission
from router.background import Background
from router.conductor import Means
from router.core import RouterCore
from router.decision_log import DecisionLog
from router.fleet import Fleet
from router.gate import Gate
from router.generation import GenerateCommand, GenerateEvent, TokenPrompt, events_of
from router.metrics import RouterMetrics
from router.ongoing_request import Services
from router.planning.books import Books
from router.planning.planner import Planner, PlannerSettings
from router.policy import select_policy
from router.prefix_lookup import NoIndex
from router.prompt import PromptReader
from router.request_planner import RequestPlanner
from router.text import TextWorkers
from router.waiting_room import WaitingRoom
from tests.support.router import text_model
from tests.support.scripted_worker import ScriptedWorker, scripted_worker

HANDED_OVER = worker_pb2.LEG_END_REASON_HANDED_OVER
RETURN_S = 0.8
GATE = 16
TIMEOUT_S = 10.0


@dataclass
class Scene:
    core: RouterCore
    metrics: RouterMetrics
    background: Background
    prefill: ScriptedWorker
    decode: ScriptedWorker
    other_decode: ScriptedWorker

    @staticmethod
    def prompt(*ids: int) -> TokenPrompt:
        return TokenPrompt(token_ids=ids)

    async def ask(self, **fields: Any) -> list[GenerateEvent]:
        command = make_command(**fields)
        async with asyncio.timeout(TIMEOUT_S):
            return [event async for event in events_of(self.core, command)]


def make_command(*, max_tokens: int = 3, n: int = 1, stop: tuple[str, ...] = (), **fields: Any) -> GenerateCommand:
    sampling = SamplingParams(max_tokens=max_tokens, n=n, stop=stop)
    return GenerateCommand(
        **{"request_id": "r", "prompt": TokenPrompt(token_ids=(1, 2, 3)), "sampling": sampling, **fields}
    )


def token_ids(events: list[GenerateEvent], choice: int = 0) -> list[int]:
    return [
        token_id for event in events for delta in event.choices if delta.index == choice for token_id in delta.token_ids
    ]


@asynccontextmanager
async def conducting_scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        prefill = await stack.enter_async_context(scripted_worker("prefill", Role.PREFILL))
        decode = await stack.enter_async_context(scripted_worker("decode-a", Role.DECODE))
        other = await stack.enter_async_context(scripted_worker("decode-b", Role.DECODE))
        text = text_model(tmp_path)
        text_workers = TextWorkers(text)
        stack.callback(text_workers.close)
        books = Books()
        fleet = Fleet("router", "model", books.roster)
        stack.push_async_callback(fleet.close)
        fleet.add_static((prefill.address, decode.address, other.address))
        background, metrics = Background(), RouterMetrics()
        stack.push_async_callback(background.close)
        # Names decide instead of chance: decode-a first.
        planner = Planner(books.roster, select_policy("round_robin"), random.Random(0), PlannerSettings())
        means = Means(
            fleet=fleet,
            planner=RequestPlanner(
                planner=planner,
                books=books,
                lookup=NoIndex(),
                background=background,
                metrics=metrics,
                decisions=DecisionLog(),
            ),
            room=WaitingRoom(fleet.changed, 16),
            background=background,
            metrics=metrics,
            max_attempts=3,
            return_s=RETURN_S,
        )
        core = RouterCore(
            model_name="model",
            fleet=fleet,
            services=Services(
                text=text_workers,
                admission=Admission(fleet, PromptReader(text_workers), "model"),
                means=means,
                metrics=metrics,
                gate=Gate(GATE),
            ),
        )
        async with asyncio.timeout(TIMEOUT_S):
            while sum(handle.usable for handle in fleet.workers()) < 3:
                await asyncio.sleep(0.01)
        yield Scene(core, metrics, background, prefill, decode, other)


def hand_over_to(decode: ScriptedWorker, *rest: int) -> Any:
    """Prefill draws token 10, and decode goes on with `rest`."""

    def script(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, 0, 10)
        prefill.end(submit.leg, HANDED_OVER, sent_bytes=4096, sent_blocks=1, transfer_ms=2.0)
        decode.tokens(submit.leg, 1, *rest, finish=True)

    return script
