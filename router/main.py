"""Composition root of a router."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import signal
import sys
import time
from contextlib import AsyncExitStack
from importlib.metadata import version

import uvloop

from common.checkpoint import resolve_model, served_name
from common.config import RouterConfig
from common.errors import SlipstreamError
from common.heap import freeze_loaded
from common.index.tls_url import with_certificates
from common.net.server import GrpcServer
from common.request import SamplingParams
from common.telemetry.logs import configure_logging
from common.thread_slice import answer_at_once
from common.vital_tasks import VitalTasks
from protos import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from router.access.access import Access
from router.access.call_guard import CallGuard
from router.admission import Admission
from router.api.admin import RouterAdminServicer
from router.api.inference import InferenceServicer
from router.background import Background
from router.conductor import Means
from router.core import RouterCore
from router.decision_log import DecisionLog
from router.fleet import Fleet
from router.gate import Gate
from router.http import create_app, serve_http
from router.index_view import IndexView
from router.metrics import RouterMetrics
from router.ongoing_request import Services
from router.planning.books import Books
from router.planning.planner import Planner, PlannerSettings
from router.policy import select_policy
from router.prefix_lookup import NoIndex, PrefixLookup
from router.prompt import PromptReader
from router.readiness import Readiness
from router.request_planner import RequestPlanner
from router.scraped import add_fleet
from router.text import TextModel, TextWorkers
from router.text.tokenizer_folder import DEFAULTED
from router.waiting_room import WaitingRoom

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


async def _serve(config: RouterConfig) -> int:
    stop, hurry = asyncio.Event(), asyncio.Event()
    failures: list[BaseException] = []

    def crash(error: BaseException) -> None:
        failures.append(error)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Told a second time, it waits for nobody any more.
        loop.add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
    access = Access.from_config(config)
    tls, guard = access.tls, CallGuard(access.authenticator)
    server = GrpcServer(tls=tls, guard=guard, require_client_certificate=access.require_client_certificate)
    grpc_port = server.bind(config.host, config.grpc_port, field="grpc_port")
    # Workers tell routers apart by it, and two machines may listen on the same address, such as 0.0.0.0.
    router_id = config.router_id or f"router-{config.host}:{grpc_port}-{secrets.token_hex(4)}"
    folder = await asyncio.to_thread(resolve_model, config.model)
    text = await asyncio.to_thread(TextModel.load, folder)
    _log_sampling_defaults(text.sampling_defaults)
    model_name = config.served_model_name or served_name(config.model, folder)
    async with AsyncExitStack() as stack:
        metrics = RouterMetrics()
        text_workers = TextWorkers(text, num_threads=config.text_threads)
        stack.callback(text_workers.close)
        background = Background()
        stack.push_async_callback(background.close)
        books = Books()
        fleet = Fleet(router_id, model_name, books.roster, tls=tls)
        stack.push_async_callback(fleet.close)
        add_fleet(metrics.registry, fleet)
        fleet.add_static(config.worker)
        tasks = VitalTasks(crash)
        if access.book is not None:
            tasks.start(access.book.watch(), "tenants")
        lookup: PrefixLookup = NoIndex()
        if config.index.index_url is not None:
            lookup = view = IndexView(with_certificates(config.index, tls), books.roster)
            stack.push_async_callback(view.close)
            view.start()
            tasks.start(view.watch(fleet), "members")
            tasks.start(fleet.keep_members(), "settle members")
        decisions = DecisionLog()
        planner = RequestPlanner(
            planner=Planner(
                books.roster,
                select_policy(config.policy),
                random.Random(),
                PlannerSettings(max_local_prefill_tokens=config.max_local_prefill_tokens),
            ),
            books=books,
            lookup=lookup,
            background=background,
            metrics=metrics,
            decisions=decisions,
        )
        means = Means(
            fleet=fleet,
            planner=planner,
            room=WaitingRoom(fleet.changed, config.max_num_requests, lambda: books.roster.version),
            background=background,
            metrics=metrics,
            max_attempts=config.max_attempts,
        )
        services = Services(
            text=text_workers,
            admission=Admission(fleet, PromptReader(text_workers), model_name),
            means=means,
            metrics=metrics,
            gate=Gate(config.max_num_requests),
        )
        core = RouterCore(model_name=model_name, fleet=fleet, services=services, limits=access.limits)
        readiness = Readiness(
            core,
            fleet,
            config.min_workers,
            announce=server.set_serving,
            probe_interval_s=config.probe_interval_s,
        )
        tasks.start(_watch_index(lookup, metrics), "index state")
        stack.callback(tasks.cancel)
        started_s = time.monotonic()

        def status() -> admin_pb2.RouterStatus:
            return admin_pb2.RouterStatus(
                router_id=router_id,
                ready=readiness.ready,
                index_degraded=lookup.num_degraded_shards > 0,
                num_active_requests=core.gate.num_inside,
                uptime_s=time.monotonic() - started_s,
                version=version("slipstream"),
            )

        inference = InferenceServicer(core, text.sampling_defaults, guard.tenant_of, core.gate.shut)
        inference_pb2_grpc.add_InferenceServicer_to_server(inference, server.server)
        admin = RouterAdminServicer(fleet, decisions, core.answers, status)
        admin_pb2_grpc.add_AdminServicer_to_server(admin, server.server)
        await server.start(["slipstream.v1.Inference", "slipstream.v1.Admin"])
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        app = create_app(
            core,
            text=text,
            metrics=metrics,
            readiness=readiness.why_not,
            authenticator=access.authenticator,
            limits=access.limits,
        )
        http = await serve_http(app, config.host, config.http_port, tls=tls)
        stack.push_async_callback(http.stop)
        freeze_loaded()
        tasks.start(readiness.run(), "readiness")
        scheme = "http" if tls is None else "https"
        _tell_ready(router_id, f"{config.host}:{grpc_port}", f"{scheme}://{config.host}:{http.port}")
        await stop.wait()
        if not failures:
            await _drain(readiness, core.gate, config.drain_timeout_s, hurry)
        logger.info("stopping")
    return 1 if failures else 0


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
