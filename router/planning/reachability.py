"""Says why waiting would be in vain."""

from __future__ import annotations

from collections.abc import Sequence

from common.config import Role
from common.errors import InvalidRequestError, UnavailableError
from router.generation import RouteHint
from router.planning.roster import Roster
from router.planning.worker_account import WorkerAccount


def check_reachable(roster: Roster, hint: RouteHint) -> None:
    """Raises InvalidRequestError where the request itself has excluded all workers that could take it, and
    UnavailableError where none is up."""
    prefill = list(roster.side(Role.PREFILL))
    if prefill and not hint.decode_only and _all_excluded(prefill, hint.exclude):
        raise InvalidRequestError("route.exclude", "leaves no prefill worker")
    decode = [account for account in roster if account.can(Role.DECODE)]
    if decode and _all_excluded(decode, hint.exclude):
        raise InvalidRequestError("route.exclude", "leaves no decode worker")
    for field, pinned in (("prefill_worker", hint.prefill_worker), ("decode_worker", hint.decode_worker)):
        if pinned in hint.exclude:
            raise InvalidRequestError("route.exclude", f"holds {pinned!r}, which route.{field} asks for")
    if not any(account.usable and account.info.worker_id not in hint.exclude for account in decode):
        draining = sorted(one.info.worker_id for one in decode if one.available and one.info.draining)
        if draining:
            raise UnavailableError(
                f"no decode worker takes work; draining: {', '.join(draining)}. Start one, or take one back by "
                f"`slipstream drain {draining[0]} --undo`"
            )
        raise UnavailableError("no decode worker is ready: start one, or wait until it has loaded its model")
    for pinned in (hint.prefill_worker, hint.decode_worker):
        account = None if pinned is None else roster.find(pinned)
        if account is not None and not account.usable:
            raise UnavailableError(f"worker {pinned}, which the request asks for, is not ready")


def _all_excluded(accounts: Sequence[WorkerAccount], exclude: Sequence[str]) -> bool:
    return all(account.info.worker_id in exclude for account in accounts)
