"""What the harness and an engine's process say to each other: one JSON object per line, an answer to each.

    {"op": "load", "model": FOLDER, "num_threads": N}                          {"version": TEXT}
    {"op": "run", "requests": [[TOKEN_IDS, MAX_TOKENS]…], "concurrency": N}    {"answers": [[SENT_S, [TIME_S…]]…]}
    {"op": "quit"}

An answer may be {"error": TEXT} instead. Text of other kinds goes to the standard error.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.speed.request import Answer, Request


class Engine(Protocol):
    @property
    def version(self) -> str: ...

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]: ...


def serve(load: Callable[[str, int], Engine]) -> None:
    """Answers until told to quit, or until the harness is gone."""
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    engine: Engine | None = None
    for line in sys.stdin:
        told = json.loads(line)
        if told["op"] == "quit":
            return
        try:
            if told["op"] == "load":
                engine = load(told["model"], told["num_threads"])
                answer: dict[str, Any] = {"version": engine.version}
            else:
                assert engine is not None, "nothing is loaded"
                answer = {"answers": _run(engine, told)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _run(engine: Engine, told: dict[str, Any]) -> list[tuple[float, tuple[float, ...]]]:
    requests = [
        Request(text="", token_ids=tuple(token_ids), max_tokens=max_tokens)
        for token_ids, max_tokens in told["requests"]
    ]
    return [(one.sent_s, one.times_s) for one in engine.run(requests, told["concurrency"])]
