"""Asks the questions of a run: which kind is next, and with whose cache."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from types import TracebackType

from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.steadiness import Steadiness
from benchmarks.chaos.stream import Stream
from benchmarks.chaos.workload import (
    Kind,
    Question,
    Reference,
    Shape,
    Workload,
    kinds_of,
    make_question,
    with_stop_string,
)
from router.generation import RouteHint
from slipstream.async_client import AsyncClient

NUM_AT_ONCE = 6
TIMEOUT_S = 60.0
MAX_VARIANTS = 20


class Asker:
    """Kinds of a shape come by turns. Owner of the client, which knows both routers."""

    def __init__(self, fleet: Fleet, workload: Workload, seed: int) -> None:
        # A router that says nothing for a lease is given up, as workers are.
        addresses = [fleet.address(name) for name in fleet.routers]
        self._client = AsyncClient(addresses, timeout_s=TIMEOUT_S, silence_s=fleet.spec.lease_s)
        self._questions: dict[Shape, itertools.cycle[Question]] = {}
        self.workload = workload
        self._seed = seed
        self._numbers = itertools.count(1)
        self.references: Mapping[str, Reference] = {}
        self.num_unsteady = 0  # questions that were not used

    async def __aenter__(self) -> Asker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._client.close()

    async def learn(self, steadiness: Steadiness) -> None:
        """The answers of a fleet that nothing has happened to yet. Raises what a request raises."""
        room = asyncio.Semaphore(NUM_AT_ONCE)
        pairs = [(shape, kind) for shape in Shape for kind in kinds_of(self.workload, shape)]
        learnt = await asyncio.gather(*(self._learn(shape, kind, room, steadiness) for shape, kind in pairs))
        self.references = {question.name: reference for question, reference in learnt}
        for shape in Shape:
            self._questions[shape] = itertools.cycle([question for question, _ in learnt if question.shape is shape])

    async def _learn(
        self, shape: Shape, kind: Kind, room: asyncio.Semaphore, steadiness: Steadiness
    ) -> tuple[Question, Reference]:
        for variant in range(MAX_VARIANTS):
            question = make_question(self._seed, self.workload, shape, kind, variant)
            async with room:
                answer = await _generate(self._client, question)
                if kind is Kind.STOP:
                    question = with_stop_string(question, answer.choices[0].text)
                    answer = await _generate(self._client, question)
            if await asyncio.to_thread(steadiness.is_steady, question, answer):
                return question, answer
            self.num_unsteady += 1
        raise ValueError(f"no answer of {shape}/{kind} is the same whatever the rounding")

    def ask(self, shape: Shape, *, salt: str = "", route: RouteHint | None = None) -> Stream:
        """`salt`: whose cached prefixes it may use; empty: nobody's, so that its prompt is computed."""
        number = next(self._numbers)
        request_id = f"{shape}-{number}"
        return Stream(
            next(self._questions[shape]),
            request_id,
            self._client,
            salt=salt or request_id,
            route=route,
        )


async def _generate(client: AsyncClient, question: Question) -> Reference:
    return Reference.of(await client.generate(question.prompt, max_tokens=question.max_tokens, **question.options))
