"""`slipstream explain`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from slipstream.commands.reaching import reaching_a_router
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.settings import ClientConfig, Sources

if TYPE_CHECKING:
    from slipstream.explanation import CandidateCost, ExplainedPlan, Explanation

CAUSES = {
    "stale": "the index said that the worker held them, and it did not any more",
    "other_worker": "another worker holds them: this one was expected to be cheaper all the same",
    "evicted": "seen before, and held by nobody now",
    "diverged": "after the end of the known prefix",
    "first_seen": "nothing of this prompt was seen before",
    "below_stride": "the prompt's end, shorter than the index's stride",
}


@settings_command("explain", short_help="Tell why a request went where it went.")
@click.argument("request_id", required=False, default="")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object instead of text")
def explain(sources: Sources, request_id: str, as_json: bool) -> int:
    """Tell why a request went where it went: candidates, the terms of their cost, and why tokens were not cached.

    REQUEST_ID is the id that the answer carries, of a completion with several prompts that and the prompt's number:
    ID-0, ID-1; without it the last request is told. Routers remember their last 512 requests.

    \b
    Examples:
      slipstream explain
      slipstream explain chatcmpl-0123456789abcdef
    """
    config = read_settings(ClientConfig, sources)
    from slipstream.commands.opening import open_client

    with reaching_a_router(), open_client(config) as client:
        explanation = client.explain(request_id)
    click.echo(json.dumps(dataclasses.asdict(explanation)) if as_json else _text(explanation))
    return 0


def _text(explanation: Explanation) -> str:
    unit = "token" if explanation.prompt_tokens == 1 else "tokens"
    lines = [f"request {explanation.request_id}: {explanation.prompt_tokens} prompt {unit}"]
    for attempt, plan in enumerate(explanation.plans, start=1):
        lines += _plan_lines(attempt, plan)
    if not explanation.plans:
        lines.append("it has not been planned: no worker had room, or it was refused")
    if explanation.cached_tokens is not None:
        lines.append(f"reused {explanation.cached_tokens} tokens, first token after {explanation.ttft_ms or 0:.1f} ms")
    lines += [f"  {count} tokens computed: {CAUSES.get(cause, cause)}" for cause, count in explanation.missed.items()]
    if explanation.diverged_at is not None:
        lines.append(f"  it leaves every known prefix at token {explanation.diverged_at}")
    return "\n".join(lines)


def _plan_lines(attempt: int, plan: ExplainedPlan) -> list[str]:
    foretold = "" if plan.predicted_ttft_ms is None else f", first token expected in {plan.predicted_ttft_ms:.1f} ms"
    lines = [f"attempt {attempt}: {plan.kind} ({plan.reason}){foretold}"]
    for role, candidates in (("prefill", plan.prefill), ("decode", plan.decode)):
        lines += _candidate_lines(role, candidates)
    return lines


def _candidate_lines(role: str, candidates: Sequence[CandidateCost]) -> list[str]:
    if not candidates:
        return []
    names = list(dict.fromkeys(name for candidate in candidates for name in candidate.terms))
    rows = [[role, "cached", "cost", *names]]
    for candidate in candidates:
        terms = [f"{candidate.terms.get(name, 0.0):.4g}" for name in names]
        rows.append([candidate.worker_id, str(candidate.cached_tokens), f"{candidate.cost:.4g}", *terms])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
