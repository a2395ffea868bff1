"""Puts a router together from its settings: fleet, index, planner, the core that front ends call."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass

from common.config import RouterConfig
from common.index.tls_url import with_certificates
from common.net.tls import TlsIdentity
from router.access.access import Access
from router.admission import Admission
from router.background import Background
from router.conductor import Means
from router.core import RouterCore
from router.decision_log import DecisionLog
from router.fleet import Fleet
from router.gate import Gate
from router.index_view import IndexView
from router.metrics import RouterMetrics
from router.ongoing_request import Services
from router.planning.books import Books
from router.planning.planner import Planner, PlannerSettings
from router.planning.roster import Roster
from router.policy import select_policy
from router.prefix_lookup import NoIndex, PrefixLookup
from router.prompt import PromptReader
from router.request_planner import RequestPlanner
from router.scraped import add_fleet
from router.text import TextModel, TextWorkers
from router.waiting_room import WaitingRoom


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRouter:
    """A router's core, and what its front ends and its tasks need beside it."""

    core: RouterCore
    fleet: Fleet
    view: IndexView | None  # without an index there is none
    lookup: PrefixLookup
    decisions: DecisionLog
    metrics: RouterMetrics


def build_router(
    config: RouterConfig, stack: AsyncExitStack, access: Access, text: TextModel, *, router_id: str, model_name: str
) -> BuiltRouter:
    """Within the event loop that will serve. What must be closed goes onto the stack; workers named in the settings are
    asked at once who they are."""
    metrics, decisions, books, background = RouterMetrics(), DecisionLog(), Books(), Background()
    text_workers = TextWorkers(text, num_threads=config.text_threads)
    stack.callback(text_workers.close)
    stack.push_async_callback(background.close)
    fleet = Fleet(router_id, model_name, books.roster, tls=access.tls)
    stack.push_async_callback(fleet.close)
    add_fleet(metrics.registry, fleet)
    fleet.add_static(config.worker)
    view = _start_view(config, stack, access.tls, books.roster)
    lookup: PrefixLookup = view or NoIndex()
    planner = RequestPlanner(
        planner=_make_planner(config, books.roster),
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
    return BuiltRouter(
        core=RouterCore(model_name=model_name, fleet=fleet, services=services, limits=access.limits),
        fleet=fleet,
        view=view,
        lookup=lookup,
        decisions=decisions,
        metrics=metrics,
    )


def _start_view(
    config: RouterConfig, stack: AsyncExitStack, tls: TlsIdentity | None, roster: Roster
) -> IndexView | None:
    if config.index.index_url is None:
        return None
    view = IndexView(with_certificates(config.index, tls), roster)
    stack.push_async_callback(view.close)
    view.start()
    return view


def _make_planner(config: RouterConfig, roster: Roster) -> Planner:
    settings = PlannerSettings(max_local_prefill_tokens=config.max_local_prefill_tokens)
    return Planner(roster, select_policy(config.policy), random.Random(), settings)
