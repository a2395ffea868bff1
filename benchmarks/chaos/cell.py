"""What is to be shown: each fault at each stage of a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    KILL = "kill"  # SIGKILL; started again under its old name
    FREEZE = "freeze"  # SIGSTOP until after its lease, then SIGCONT
    CUT = "cut"  # nothing passes, in either direction, and nobody is told; healed after the lease
    SLOW = "slow"  # bytes trickle
    DRAIN = "drain"  # SIGTERM under load
    CANCEL = "cancel"  # the caller goes away


class Target(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    LINK = "link"  # between one prefill and one decode worker
    ROUTER = "router"
    INDEX = "index"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, order=True)
class Strike:
    """One fault at one kind of target: a column of the table."""

    fault: Fault
    target: Target

    def __str__(self) -> str:
        return f"{self.fault}-{self.target}"


class Stage(StrEnum):
    """States of a request's ticket and stages of the request, of which one may be in several: the table's rows."""

    QUEUED = "queued"  # at the router: every worker is full
    OFFERED = "offered"  # the ticket is minted, nothing granted
    CREDITED = "credited"  # room is granted, no block mapped
    MAPPED = "mapped"  # decode may be written to, and was not yet
    SENDING = "sending"  # some bytes have arrived
    COMMITTED = "committed"  # decode has it all, and prefill has not heard so
    WAITING = "waiting"  # at prefill, before the first chunk
    PREFILLING = "prefilling"  # between chunks
    EARLY = "early"  # decoding, in the first half of the answer
    LATE = "late"  # decoding, in the second half of the answer
    DRAINING = "draining"  # at a worker that was asked to stop, and has work yet

    def applies_to(self, strike: Strike) -> bool:
        """A worker that drains is struck by faults of workers; to be drained is a fault itself."""
        if self is not Stage.DRAINING:
            return True
        return strike.fault is not Fault.DRAIN and strike.target in (Target.PREFILL, Target.DECODE, Target.LINK)


STRIKES = (
    Strike(Fault.KILL, Target.PREFILL),
    Strike(Fault.KILL, Target.DECODE),
    Strike(Fault.KILL, Target.ROUTER),
    Strike(Fault.KILL, Target.INDEX),
    Strike(Fault.FREEZE, Target.PREFILL),
    Strike(Fault.FREEZE, Target.DECODE),
    Strike(Fault.FREEZE, Target.ROUTER),
    Strike(Fault.CUT, Target.PREFILL),
    Strike(Fault.CUT, Target.DECODE),
    Strike(Fault.CUT, Target.LINK),
    Strike(Fault.SLOW, Target.LINK),
    Strike(Fault.DRAIN, Target.PREFILL),
    Strike(Fault.DRAIN, Target.DECODE),
    Strike(Fault.CANCEL, Target.CLIENT),
)
