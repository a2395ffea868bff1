"""What a tenant may take at a time, and when it may again."""

from __future__ import annotations

import dataclasses

import pytest

from common.errors import OverloadedError
from router.access.tenant import Limits, Tenant
from router.access.tenant_limits import TenantLimits


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> TenantLimits:
    return TenantLimits(clock)


def tenant(name: str = "a", **limits: float) -> Tenant:
    return Tenant(name=name, limits=Limits(**limits))  # type: ignore[arg-type]


def refusal(limits: TenantLimits, one: Tenant) -> OverloadedError:
    with pytest.raises(OverloadedError) as checked:
        limits.check(one)
    with pytest.raises(OverloadedError) as admitted:
        limits.admit(one)
    assert str(checked.value) == str(admitted.value)
    return admitted.value


def test_requests_per_second(limits: TenantLimits, clock: Clock) -> None:
    one = tenant(requests_per_s=2)
    for _ in range(2):
        limits.admit(one).release()
    error = refusal(limits, one)
    assert "limit of 2 requests per second" in str(error) and error.retry_after_s == pytest.approx(0.5)
    clock.now_s = 0.5
    limits.admit(one)


def test_concurrent_requests(limits: TenantLimits) -> None:
    one = tenant(max_concurrent_requests=2)
    leases = [limits.admit(one), limits.admit(one)]
    assert "2 requests at the same time" in str(refusal(limits, one))
    leases[0].release()
    leases[0].release()  # of no effect
    limits.admit(one)
    refusal(limits, one)


def test_tokens_are_paid_as_they_come(limits: TenantLimits, clock: Clock) -> None:
    one = tenant(tokens_per_s=100)
    lease = limits.admit(one)
    lease.charge(600)  # a prompt may be longer than a second's worth: what is too much is paid back
    for _ in range(100):
        lease.charge(1)
    lease.release()
    error = refusal(limits, one)
    assert "100 tokens per second" in str(error) and error.retry_after_s == pytest.approx(6.01)
    clock.now_s = 6.02
    limits.admit(one)


def test_tenants_do_not_pay_for_each_other(limits: TenantLimits) -> None:
    limits.admit(tenant("a", requests_per_s=1))
    limits.admit(tenant("b", requests_per_s=1))
    refusal(limits, tenant("a", requests_per_s=1))


def test_a_look_takes_nothing(limits: TenantLimits) -> None:
    one = tenant(requests_per_s=1)
    for _ in range(10):
        limits.check(one)
    limits.admit(one)


def test_new_limits_hold_at_once_and_debts_stay(limits: TenantLimits) -> None:
    one = tenant(tokens_per_s=100)
    limits.admit(one).charge(1000)
    faster = dataclasses.replace(one, limits=Limits(tokens_per_s=1000))
    assert refusal(limits, faster).retry_after_s == pytest.approx(0.901)
    limits.admit(dataclasses.replace(one, limits=Limits()))


def test_nobody_has_no_limits(limits: TenantLimits) -> None:
    for _ in range(1000):
        limits.admit(None).charge(1_000_000)
