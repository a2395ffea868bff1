"""Asks the questions of a run: which kind is next, by which router, and with whose cache."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from types import TracebackType

from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.stream import Stream
from benchmarks.chaos.workload import Question, Reference, Shape, wants_stop_string, with_stop_string
from router.generation import RouteHint
from slipstream.async_client import AsyncClient

NUM_AT_ONCE = 6
TIMEOUT_S = 60.0


class Asker:
    """Kinds of a shape come by turns, and routers too. Owner of one client per router."""

    def __init__(self, fleet: Fleet, questions: Sequence[Question]) -> None:
        self._clients = {name: AsyncClient(fleet.address(name), timeout_s=TIMEOUT_S) for name in fleet.routers}
        self._routers = itertools.cycle(fleet.routers)
        self._questions: dict[Shape, itertools.cycle[Question]] = {}
        self._all = list(questions)
        self._numbers = itertools.count(1)
        self.references: Mapping[str, Reference] = {}
        self.num_asked = 0

    async def __aenter__(self) -> Asker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            await client.close()

    async def learn(self) -> None:
        """The answers of a fleet that nothing has happened to yet. Raises what a request raises."""
        room = asyncio.Semaphore(NUM_AT_ONCE)

        async def answer(question: Question) -> tuple[Question, Reference]:
            async with room:
                client = self._clients[next(self._routers)]
                if wants_stop_string(question):
                    text = (await _generate(client, question)).choices[0].text
                    question = with_stop_string(question, text)
                return question, await _generate(client, question)

        learnt = await asyncio.gather(*map(answer, self._all))
        self._all = [question for question, _ in learnt]
        self.references = {question.name: reference for question, reference in learnt}
        for shape in Shape:
            self._questions[shape] = itertools.cycle([one for one in self._all if one.shape is shape])

    def ask(self, shape: Shape, *, salt: str = "", route: RouteHint | None = None) -> Stream:
        """`salt`: whose cached prefixes it may use; empty: nobody's, so that its prompt is computed."""
        self.num_asked += 1
        number = next(self._numbers)
        router = next(self._routers)
        request_id = f"{shape}-{number}"
        return Stream(
            next(self._questions[shape]),
            request_id,
            router,
            self._clients[router],
            salt=salt or request_id,
            route=route,
        )


async def _generate(client: AsyncClient, question: Question) -> Reference:
    return Reference.of(
        await client.generate(question.prompt, max_tokens=question.max_tokens, **question.options)  # type: ignore[misc]
    )
