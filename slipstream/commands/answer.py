"""Streams one answer to a terminal, for `generate` and for the first prompt of `up`."""

from __future__ import annotations

import click

from common.errors import InvalidRequestError
from slipstream.client import Client
from slipstream.generation import GenerateOptions, Generation, GenerationBuilder


def stream_answer(
    client: Client, prompt: str, chat: bool | None, options: GenerateOptions, *, echo: bool
) -> Generation:
    """The answer, written as it comes when `echo`. `chat` None: as a chat message if the model has a template.

    Raises SlipstreamError.
    """
    if chat is None:
        try:
            return _stream(client, None, _as_chat(prompt, options), echo)
        except InvalidRequestError as error:
            if "no chat template" not in str(error):
                raise
            click.echo("note: the model has no chat template, so the prompt is sent as it stands (--raw)", err=True)
            chat = False
    if chat:
        return _stream(client, None, _as_chat(prompt, options), echo)
    return _stream(client, prompt, options, echo)


def summary(answer: Generation) -> str:
    """One line about what the answer took."""
    usage, timings, route = answer.usage, answer.timings, answer.route
    num_more = usage.generated_tokens - 1
    then = f", then {(timings.total_s - timings.ttft_s) / num_more * 1000:.0f} ms per token" if num_more > 0 else ""
    workers = " → ".join(filter(None, (route.prefill_worker, route.decode_worker)))
    unit = "token" if usage.prompt_tokens == 1 else "tokens"
    return (
        f"{usage.prompt_tokens} prompt {unit} ({usage.cached_tokens} cached), {usage.generated_tokens} generated · "
        f"first token {timings.ttft_s * 1000:.0f} ms{then} · {workers}"
    )


def _as_chat(prompt: str, options: GenerateOptions) -> GenerateOptions:
    return GenerateOptions(**{**options, "messages": [{"role": "user", "content": prompt}]})


def _stream(client: Client, prompt: str | None, options: GenerateOptions, echo: bool) -> Generation:
    builder = GenerationBuilder()
    for delta in client.stream(prompt, **options):
        builder.add(delta)
        if echo:
            click.echo(delta.text, nl=False)
    if echo:
        click.echo()
    return builder.build()
