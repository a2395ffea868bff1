"""What each tenant has taken of its limits. A request is let in while there is room, and pays as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable

from common.errors import OverloadedError
from router.access.rate_bucket import RateBucket
from router.access.tenant import Limits, Tenant

# How long it takes until one of a tenant's own requests ends is not known.
CONCURRENCY_RETRY_S = 1.0


class TenantLimits:
    """Owned by the event loop. A tenant's account outlives its requests: what it overdrew is not forgotten.

    Nobody's requests (None) have no limits here.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._unlimited = _Account("")

    def check(self, tenant: Tenant | None) -> None:
        """Whether a request would be let in, for the price of a look. Raises OverloadedError with the time to wait."""
        self._account(tenant).check(self._clock())

    def admit(self, tenant: Tenant | None) -> TenantLease:
        """Lets a request in. Raises OverloadedError with the time to wait."""
        account, now_s = self._account(tenant), self._clock()
        account.check(now_s)
        account.enter(now_s)
        return TenantLease(account, self._clock)

    def _account(self, tenant: Tenant | None) -> _Account:
        if tenant is None:
            return self._unlimited
        account = self._accounts.get(tenant.name)
        if account is None:
            account = self._accounts[tenant.name] = _Account(tenant.name)
        account.set_limits(tenant.limits, self._clock())
        return account


class TenantLease:
    """One request's place. `release` it on every path."""

    def __init__(self, account: _Account, clock: Callable[[], float]) -> None:
        self._account: _Account | None = account
        self._clock = clock
        self.num_tokens = 0

    def charge(self, num_tokens: int) -> None:
        """Tokens that the request has taken: of its prompt, and as they are generated."""
        self.num_tokens += num_tokens
        if self._account is not None:
            self._account.charge(num_tokens, self._clock())

    def release(self) -> None:
        """Idempotent."""
        if self._account is not None:
            self._account.num_active -= 1
            self._account = None


class _Account:
    def __init__(self, name: str) -> None:
        self._name = name
        self._limits = Limits()
        self._requests: RateBucket | None = None
        self._tokens: RateBucket | None = None
        self.num_active = 0

    def set_limits(self, limits: Limits, now_s: float) -> None:
        if limits != self._limits:
            self._requests = _with_rate(self._requests, limits.requests_per_s, now_s)
            self._tokens = _with_rate(self._tokens, limits.tokens_per_s, now_s)
            self._limits = limits

    def check(self, now_s: float) -> None:
        limits = self._limits
        if limits.max_concurrent_requests is not None and self.num_active >= limits.max_concurrent_requests:
            what = f"{limits.max_concurrent_requests} requests at the same time"
            raise self._refused(what, CONCURRENCY_RETRY_S)
        if self._requests is not None and (wait_s := self._requests.wait_s(now_s)) > 0:
            raise self._refused(f"{limits.requests_per_s:g} requests per second", wait_s)
        if self._tokens is not None and (wait_s := self._tokens.wait_s(now_s)) > 0:
            raise self._refused(f"{limits.tokens_per_s:g} tokens per second", wait_s)

    def enter(self, now_s: float) -> None:
        self.num_active += 1
        if self._requests is not None:
            self._requests.take(1, now_s)

    def charge(self, num_tokens: int, now_s: float) -> None:
        if self._tokens is not None:
            self._tokens.take(num_tokens, now_s)

    def _refused(self, limit: str, retry_after_s: float) -> OverloadedError:
        return OverloadedError(f"tenant {self._name!r} has reached its limit of {limit}", retry_after_s)


def _with_rate(bucket: RateBucket | None, rate_per_s: float | None, now_s: float) -> RateBucket | None:
    if rate_per_s is None:
        return None
    if bucket is None:
        return RateBucket(rate_per_s, now_s)
    bucket.set_rate(rate_per_s, now_s)
    return bucket
