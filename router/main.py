"""Composition root of a router."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import signal
import sys
import time
from contextlib import AsyncExitStack
from importlib.metadata import version

import uvloop
from starlette.types import ASGIApp

from common.checkpoint import resolve_model, served_name
from common.config import RouterConfig
from common.errors import SlipstreamError
from common.heap import freeze_loaded
from common.net.server import GrpcServer
from common.request import SamplingParams
from common.telemetry.logs import configure_logging
from common.thread_slice import answer_at_once
from common.vital_tasks import VitalTasks
from protos import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from router.access.access import Access
from router.access.call_guard import CallGuard
from router.access.tenant_book import TenantBook
from router.api.admin import RouterAdminServicer
from router.api.inference import InferenceServicer
from router.build import BuiltRouter, build_router
from router.gate import Gate
from router.http import create_app, serve_http
from router.metrics import RouterMetrics
from router.prefix_lookup import PrefixLookup
from router.readiness import Readiness
from router.text import TextModel
from router.text.tokenizer_folder import DEFAULTED

logger = logging.getLogger(__name__)

STOP_GRACE_S = 5.0


def run(config: RouterConfig) -> int:
    """Runs until SIGTERM or SIGINT. The exit code: 0, or 1 after a message that says what to do."""
    configure_logging(config.router_id or "router", config.process.log_level)
    answer_at_once()
    try:
        return uvloop.run(_serve(config))
    except SlipstreamError as error:
        logger.error("%s", error)
        return 1


class Ending:
    """Why and how the process ends. Owned by the event loop."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()  # waits for nobody any more
        self.failures: list[BaseException] = []

    def listen(self) -> None:
        """The first SIGTERM or SIGINT stops, another one hurries."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: (self.hurry if self.stop.is_set() else self.stop).set())

    def crash(self, error: BaseException) -> None:
        self.failures.append(error)
        self.stop.set()


async def _serve(config: RouterConfig) -> int:
    ending = Ending()
    ending.listen()
    access = Access.from_config(config)
    guard = CallGuard(access.authenticator)
    server = GrpcServer(tls=access.tls, guard=guard, require_client_certificate=access.require_client_certificate)
    grpc_port = server.bind(config.host, config.grpc_port, field="grpc_port")
    # Workers tell routers apart by it, and two machines may listen on the same address, such as 0.0.0.0.
    router_id = config.router_id or f"router-{config.host}:{grpc_port}-{secrets.token_hex(4)}"
    folder = await asyncio.to_thread(resolve_model, config.model)
    text = await asyncio.to_thread(TextModel.load, folder)
    _log_sampling_defaults(text.sampling_defaults)
    model_name = config.served_model_name or served_name(config.model, folder)
    async with AsyncExitStack() as stack:
        router = build_router(config, stack, access, text, router_id=router_id, model_name=model_name)
        readiness = Readiness(
            router.core,
            router.fleet,
            config.min_workers,
            announce=server.set_serving,
            probe_interval_s=config.probe_interval_s,
        )
        tasks = VitalTasks(ending.crash)
        stack.callback(tasks.cancel)
        _start_watches(tasks, router, access.book)
        _add_services(server, router, readiness, text.sampling_defaults, guard)
        await server.start(["slipstream.v1.Inference", "slipstream.v1.Admin"])
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        app = _make_app(router, readiness, text, access)
        http = await serve_http(app, config.host, config.http_port, tls=access.tls)
        stack.push_async_callback(http.stop)
        freeze_loaded()
        tasks.start(readiness.run(), "readiness")
        scheme = "http" if access.tls is None else "https"
        _tell_ready(router_id, f"{config.host}:{grpc_port}", f"{scheme}://{config.host}:{http.port}")
        await ending.stop.wait()
        if not ending.failures:
            await _drain(readiness, router.core.gate, config.drain_timeout_s, ending.hurry)
        logger.info("stopping")
    return 1 if ending.failures else 0


def _start_watches(tasks: VitalTasks, router: BuiltRouter, book: TenantBook | None) -> None:
    if book is not None:
        tasks.start(book.watch(), "tenants")
    if router.view is not None:
        tasks.start(router.view.watch(router.fleet), "members")
        tasks.start(router.fleet.keep_members(), "settle members")
    tasks.start(_watch_index(router.lookup, router.metrics), "index state")


def _add_services(
    server: GrpcServer, router: BuiltRouter, readiness: Readiness, defaults: SamplingParams, guard: CallGuard
) -> None:
    started_s = time.monotonic()

    def status() -> admin_pb2.RouterStatus:
        return admin_pb2.RouterStatus(
            router_id=router.fleet.router_id,
            ready=readiness.ready,
            index_degraded=router.lookup.num_degraded_shards > 0,
            num_active_requests=router.core.gate.num_inside,
            uptime_s=time.monotonic() - started_s,
            version=version("slipstream"),
        )

    inference = InferenceServicer(router.core, defaults, guard.tenant_of, router.core.gate.shut)
    inference_pb2_grpc.add_InferenceServicer_to_server(inference, server.server)
    admin = RouterAdminServicer(router.fleet, router.decisions, router.core.answers, status)
    admin_pb2_grpc.add_AdminServicer_to_server(admin, server.server)


def _make_app(router: BuiltRouter, readiness: Readiness, text: TextModel, access: Access) -> ASGIApp:
    return create_app(
        router.core,
        text=text,
        metrics=router.metrics,
        readiness=readiness.why_not,
        authenticator=access.authenticator,
        limits=access.limits,
    )


async def _drain(readiness: Readiness, gate: Gate, drain_s: float, hurry: asyncio.Event) -> None:
    """Says so first, takes no more requests, and lets running answers end."""
    await readiness.drain()
    logger.info("draining: %d requests are running", gate.num_inside)
    draining, hurrying = asyncio.create_task(gate.drain(drain_s)), asyncio.create_task(hurry.wait())
    await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        draining.cancel()
        await asyncio.wait({draining})
        draining = asyncio.create_task(gate.drain(0.0))
    hurrying.cancel()
    if not await draining:
        logger.warning("not all requests had ended: the others were cut off")


def _log_sampling_defaults(defaults: SamplingParams) -> None:
    told = [f"{name} {getattr(defaults, name):g}" for name in DEFAULTED]
    if defaults != SamplingParams():
        logger.info("the model's generation_config.json samples requests that don't say with %s", ", ".join(told))


async def _watch_index(lookup: PrefixLookup, metrics: RouterMetrics) -> None:
    while True:
        metrics.set_index_degraded(lookup.num_degraded_shards)
        await asyncio.sleep(1.0)


def _tell_ready(router_id: str, grpc_address: str, http_url: str) -> None:
    told = {"router_id": router_id, "grpc_address": grpc_address, "http_url": http_url}
    sys.stdout.write(f"READY {json.dumps(told)}\n")
    sys.stdout.flush()
