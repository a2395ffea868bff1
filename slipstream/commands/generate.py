"""`slipstream generate`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from common.config import EngineConfig
from slipstream.cluster_config import ClusterConfig
from slipstream.commands.interrupt import sigterm_as_interrupt
from slipstream.commands.reaching import reaching_a_router
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.settings import ClientConfig, GenerateConfig, Sources, command_settings

if TYPE_CHECKING:
    from slipstream.generation import GenerateOptions, Generation


@settings_command("generate", short_help="Stream one answer from a running router, or from a fleet of its own.")
@click.argument("prompt", required=False)
@click.option("--local", is_flag=True, help="start a fleet on this machine, answer, and stop it")
@click.option("--chat/--raw", default=None, help="as a chat message, or as it stands [default: chat if the model can]")
@click.option("--max-tokens", type=int, default=256, show_default=True, help="tokens to generate at most")
@click.option("--temperature", type=float, help="0: always the likeliest token; above 0: drawn by chance [default: 1]")
@click.option("--top-p", type=float, help="draw from the likeliest tokens of this probability together [default: 1]")
@click.option("--top-k", type=int, help="draw from this many of the likeliest tokens; 0: from all [default: 0]")
@click.option("--seed", type=int, help="the same seed draws the same answer [default: a random one]")
@click.option("--stop", multiple=True, help="a text that ends the answer; repeatable")
@click.option("--ignore-eos", is_flag=True, help="go on after the model's end-of-sequence token, up to --max-tokens")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object with text, tokens, usage and timings")
def generate(
    sources: Sources, prompt: str | None, local: bool, chat: bool | None, as_json: bool, **sampling: Any
) -> int:
    """Stream an answer to PROMPT (or to standard input) from a running router.

    With --local it starts a fleet on this machine first and stops it afterwards; the engine settings below are for
    that fleet. Without it only --served-model-name is of use among them: which of the router's models to ask.

    \b
    Examples:
      slipstream generate --temperature 0 "What is the capital of France?"
      slipstream generate --raw --temperature 0 --max-tokens 16 "The capital of France is"
      slipstream generate --local "Tell me a story."
      cat notes.txt | slipstream generate --target 10.0.0.1:50051
    """
    _check_flags(sources, local)
    config = read_settings(GenerateConfig, sources)
    text = _read_prompt(prompt)
    options = _options(sampling)
    if not local:
        options["model"] = config.engine.served_model_name or ""
    with _router(config, local) as router:
        answer = _ask(router, text, chat, options, as_json)
    if as_json:
        click.echo(json.dumps(_as_json(answer), ensure_ascii=False))
    return 0


def _check_flags(sources: Sources, local: bool) -> None:
    """Refuses flags that would be ignored. Variables and files serve several commands, and may say more."""
    for one in command_settings("generate"):
        if one.name not in sources.flags or one.name == "served_model_name":
            continue
        if not local and one.section == "Engine":
            raise click.UsageError(
                f"{one.flag} is a setting of the fleet that --local starts; a running router has its own "
                "(which of its models to ask: --served-model-name)"
            )
        if local and one.name in ("target", "tls_dir", "api_key"):
            raise click.UsageError(f"{one.flag} is for a running router, and --local starts one of its own")


def _read_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise click.UsageError("give a PROMPT, or pipe one in")
    if prompt is None:
        try:
            prompt = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise click.UsageError("standard input must be UTF-8 text") from None
        if not prompt.strip():
            raise click.UsageError("standard input is empty: give a PROMPT, or pipe one in")
    elif not prompt:
        raise click.UsageError("PROMPT is empty")
    return prompt


def _ask(config: ClientConfig, text: str, chat: bool | None, options: GenerateOptions, as_json: bool) -> Generation:
    from slipstream.commands.answer import stream_answer, summary
    from slipstream.commands.opening import open_client

    with open_client(config) as client:
        answer = stream_answer(client, text, chat, options, echo=not as_json)
    if not as_json:
        click.secho(summary(answer), dim=True, err=True)
    return answer


@contextmanager
def _router(config: GenerateConfig, local: bool) -> Iterator[ClientConfig]:
    """Where to ask. A fleet of its own is this machine's, without certificates and keys."""
    if not local:
        with reaching_a_router():
            yield config.client
        return
    from slipstream.commands.progress import StartProgress
    from slipstream.launcher import Cluster

    progress = StartProgress()
    cluster = Cluster(_local_cluster(config.engine), on_event=progress.show)
    with sigterm_as_interrupt(), closing(cluster):
        with progress:
            cluster.start()
        yield ClientConfig(target=tuple(cluster.grpc_addresses), timeout_s=config.client.timeout_s)


def _local_cluster(engine: EngineConfig) -> ClusterConfig:
    return ClusterConfig(engine=engine, grpc_port=0, http_port=0)


def _options(sampling: dict[str, Any]) -> GenerateOptions:
    given: Any = {
        name: value for name, value in sampling.items() if value is not None and value is not False and value != ()
    }
    options: GenerateOptions = given
    return options


def _as_json(answer: Generation) -> dict[str, Any]:
    choice = answer.choices[0]
    return {
        "request_id": answer.request_id,
        "text": choice.text,
        "token_ids": choice.token_ids,
        "finish_reason": choice.finish_reason,
        "usage": dataclasses.asdict(answer.usage),
        "timings": dataclasses.asdict(answer.timings),
        "route": dataclasses.asdict(answer.route),
    }
