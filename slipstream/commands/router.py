"""`slipstream router`."""

from __future__ import annotations

from common.config import RouterConfig
from common.net.peer_role import PeerRole
from slipstream.access_check import check_identity, check_tenants
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.ports import check_router_ports
from slipstream.settings import Sources


@settings_command("router", short_help="Run a router: the gRPC and HTTP front of a fleet.")
def router(sources: Sources) -> int:
    """Run a router: it accepts requests over gRPC and over the OpenAI HTTP API and conducts them through the workers.

    Workers are found through the index (--index-url), or listed (--worker), or both; one of the two is needed. The
    router reads the model's tokenizer and chat template, so give it the --model that the workers have.

    \b
    Examples:
      slipstream router --index-url redis://10.0.0.1:6379 --model /models/llama --host 0.0.0.0
      slipstream router --worker 10.0.0.2:7001 --worker 10.0.0.3:7001 --model /models/llama
    """
    config = read_settings(RouterConfig, sources)
    check_router_ports(config)
    check_identity(config.process, PeerRole.ROUTER)
    check_tenants(config.api_keys)
    from router.main import run

    return run(config)
