"""`slipstream prefill` and `slipstream decode`."""

from __future__ import annotations

import os

from common.config import Role, WorkerConfig
from common.net.peer_role import PeerRole
from slipstream.access_check import check_identity
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.cores import WORKER_ENVIRONMENT
from slipstream.ports import check_worker_port
from slipstream.settings import Sources


@settings_command("prefill", short_help="Run a prefill worker: computes prompts and hands their KV cache over.")
def prefill(sources: Sources) -> int:
    """Run a prefill worker: it computes the KV cache of prompts, pushes it to decode workers, and draws
    the first token.

    Routers find it through the index (--index-url); without one, each router must list it (--worker).

    \b
    Examples:
      slipstream prefill --index-url redis://10.0.0.1:6379 --model /models/llama
      slipstream prefill --host 0.0.0.0 --port 7001 --advertise 10.0.0.2:7001 \\
                         --index-url redis://10.0.0.1:6379 --model /models/llama
    """
    config = read_settings(WorkerConfig, sources, {"role": Role.PREFILL})
    check_worker_port(config)
    check_identity(config.process, PeerRole.WORKER)
    _prepare_environment()
    from prefill_worker.main import run

    return run(config)


@settings_command("decode", short_help="Run a decode worker: receives KV cache and generates the answer.")
def decode(sources: Sources) -> int:
    """Run a decode worker: it receives the KV cache of prompts and generates their answers in a continuous batch.

    With --role both it also computes the prompts by itself, and needs no prefill worker. Routers find it through the
    index (--index-url); without one, each router must list it (--worker).

    \b
    Examples:
      slipstream decode --index-url redis://10.0.0.1:6379 --model /models/llama
      slipstream decode --role both --port 7001 --model /models/llama
    """
    config = read_settings(WorkerConfig, sources)
    check_worker_port(config)
    check_identity(config.process, PeerRole.WORKER)
    _prepare_environment()
    from decode_worker.main import run

    return run(config)


def _prepare_environment() -> None:
    """What libgomp reads when torch is loaded, for a worker that is started by hand; a value given wins."""
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
