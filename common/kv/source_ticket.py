"""The sending side of one transfer: what is to be sent, when to commit, when the blocks are free again.

Pure: no I/O, no clock (callers pass `now`, seconds on one monotonic clock). What the caller must do is queued as
actions; call a method, then carry out `drain_actions()` in order. Its twin at the sink is `ticket_table`.

The usual path: computed … → (ask_map → mapped) → push … → push_ended → handed_over → commit → committed → End.
`give_up` and `expire` are legal in any state. `End` comes once, last, and never while a push runs: a push reads the
blocks, and they go back at `End`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from common.errors import IntegrityError, OverloadedError, SlipstreamError, StaleTicketError, UnavailableError
from common.kv.block_map import GroupMap
from common.kv.first_token import FirstToken
from common.kv.ticket import BlockRef

SourceBlock = tuple[BlockRef, int]  # where it belongs in the sequence, and its block id here


class SourceState(StrEnum):
    CREDITED = "credited"  # the sink holds room; where the blocks go is not known yet
    MAPPED = "mapped"  # the places are known
    SENDING = "sending"  # at least one push has begun
    COMMITTING = "committing"  # all is sent; the sink has been asked to take it
    COMMITTED = "committed"  # the sink has it
    RELEASED = "released"  # given up on purpose: nobody wants it any more
    FAILED = "failed"  # broken, at either end
    EXPIRED = "expired"  # the sink was silent for the length of the lease

    @property
    def is_open(self) -> bool:
        return self in (SourceState.CREDITED, SourceState.MAPPED, SourceState.SENDING, SourceState.COMMITTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVReady:
    """All blocks are computed and the first tokens drawn: what the commit will say."""

    num_computed_tokens: int
    first_tokens: tuple[FirstToken, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class AskMap:
    """Ask the sink where the blocks go; answer with `mapped` or `map_refused`."""


@dataclass(frozen=True, slots=True)
class Push:
    """Send these blocks; answer with `push_ended` or `push_failed`."""

    blocks: tuple[SourceBlock, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Ask the sink to take what was sent; answer with `committed`, `commit_lost` or `commit_refused`."""

    ready: KVReady


@dataclass(frozen=True, slots=True)
class Stop:
    """End whatever is under way, a push that hangs too (answer with `push_ended`), and tell the sink why."""

    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing reads the blocks any more: give them back, and tell who waits. `error` is set unless it is COMMITTED
    or RELEASED."""

    state: SourceState
    error: SlipstreamError | None


SourceAction = AskMap | Push | Commit | Stop | End


class SourceTicket:
    """One thread. `maps` None: mapped later, when `ask_map` is called or nothing is left to compute.

    A sink that is asked and says nothing for `lease_s` seconds is given up. So is one that has no blocks for so long
    after everything was computed: what is computed fills this worker, the sink may be full of what waits to be computed
    here, and neither would ever go on.
    """

    def __init__(self, *, choice_indices: Iterable[int], maps: tuple[GroupMap, ...] | None, lease_s: float) -> None:
        self.state = SourceState.CREDITED if maps is None else SourceState.MAPPED
        self._lease_s = lease_s
        self._missing = None if maps is None else _missing(maps)
        self._open_choices = set(choice_indices)
        self._computed: list[SourceBlock] = []
        self._ready: KVReady | None = None
        self._asking = self._pushing = self._committing = False
        self._ended = False
        self._waits_since_s: float | None = None
        self._refused_since_s: float | None = None  # while nothing but the sink's blocks are missing
        self._error: SlipstreamError | None = None
        self._actions: list[SourceAction] = []

    @property
    def is_mapped(self) -> bool:
        return self._missing is not None

    def drain_actions(self) -> list[SourceAction]:
        """What to do since the last call, in order."""
        actions = self._actions
        self._actions = []
        return actions

    def computed(self, blocks: Iterable[SourceBlock], now: float) -> None:
        """The KV of these blocks is complete, and stays as it is until End."""
        self._computed.extend(blocks)
        self._advance(now)

    def ask_map(self, now: float) -> None:
        """It is time to know the places. Idempotent."""
        if self.state is SourceState.CREDITED and not self._asking:
            self._asking = True
            self._wait(now)
            self._actions.append(AskMap())

    def mapped(self, maps: tuple[GroupMap, ...], now: float) -> None:
        """The sink's answer to AskMap. One that comes too late changes nothing."""
        self._asking = False
        if self.state is SourceState.CREDITED:
            self._missing = _missing(maps)
            self.state = SourceState.MAPPED
            self._waits_since_s = None
            self._advance(now)

    def map_refused(self, now: float, *, answered: bool) -> None:
        """The sink has no blocks to give yet (`answered`), or said nothing: `ask_map` may be called again."""
        self._asking = False
        if answered:
            self.progress(now)
            self._note_refusal(now)
        self._advance(now)

    def push_ended(self, now: float) -> None:
        """A push has sent its blocks, or was stopped: it reads nothing any more."""
        self._pushing = False
        self._waits_since_s = None
        self._advance(now)

    def push_failed(self, error: SlipstreamError, now: float) -> None:
        """A push broke: it reads nothing any more."""
        self._pushing = False
        self._fail(SourceState.FAILED, error)
        self._advance(now)

    def progress(self, now: float) -> None:
        """A sign of life from the sink, such as bytes taken by a push."""
        if self._waits_since_s is not None:
            self._waits_since_s = now

    def handed_over(self, ready: KVReady, now: float) -> None:
        """Nothing is left to compute. Blocks that complete it were told before."""
        self._ready = ready
        self._advance(now)

    def committed(self, now: float) -> None:
        """The sink has accepted the commit. After `give_up` it changes nothing: the sink is told to forget it."""
        self._committing = False
        self._waits_since_s = None
        if self.state is SourceState.COMMITTING:
            self.state = SourceState.COMMITTED
        self._advance(now)

    def commit_lost(self, now: float) -> None:
        """No answer: the same commit is asked again, which the sink answers alike, until the lease has run out."""
        self._committing = False
        self._advance(now)

    def commit_refused(self, error: SlipstreamError, now: float) -> None:
        self._committing = False
        self._fail(SourceState.FAILED, error)
        self._advance(now)

    def failed(self, error: SlipstreamError, now: float) -> None:
        """It can't go on here, whatever it was doing."""
        self._fail(SourceState.FAILED, error)
        self._advance(now)

    def choices_ended(self, choice_indices: Iterable[int], now: float) -> None:
        """Cancelled, failed, or finished by their first token. Without any left there is nothing to hand over."""
        self._open_choices.difference_update(choice_indices)
        if not self._open_choices:
            self.give_up("every choice has ended", now)

    def give_up(self, reason: str, now: float) -> None:
        """Nobody wants it any more. Idempotent, legal in any state."""
        if self.state.is_open:
            self.state = SourceState.RELEASED
            self._stop(reason)
        self._advance(now)

    def expire(self, now: float) -> None:
        """Gives up a sink that has been silent too long. Call it now and then."""
        if self._waits_since_s is not None and now - self._waits_since_s >= self._lease_s:
            error = UnavailableError(f"the sink was silent for {self._lease_s:g} s")
            self._fail(SourceState.EXPIRED, error)
        self._advance(now)

    def check_integrity(self) -> None:
        """Raises IntegrityError when it contradicts itself."""
        expectations = {
            "it has ended while a push runs": not (self._ended and self._pushing),
            "it has ended and is open": not (self._ended and self.state.is_open),
            "it is sending without a map": self.is_mapped or self.state is not SourceState.SENDING,
            "it commits while a push runs": not (self._committing and self._pushing),
        }
        for message, holds in expectations.items():
            if not holds:
                raise IntegrityError(f"source ticket ({self.state}): {message}")

    def _advance(self, now: float) -> None:
        if not self.state.is_open:
            self._try_end()
        elif not self.is_mapped:
            if self._ready is not None:
                self.ask_map(now)
        elif not self._pushing and not self._committing:
            self._push_or_commit(now)

    def _push_or_commit(self, now: float) -> None:
        assert self._missing is not None
        blocks = tuple(block for block in self._computed if block[0] in self._missing)
        self._computed.clear()
        if blocks:
            if self.state is SourceState.COMMITTING:
                self._fail(SourceState.FAILED, StaleTicketError("a block was computed after the commit"))
                self._try_end()
                return
            self._pushing = True
            self.state = SourceState.SENDING
            self._wait(now)
            self._actions.append(Push(blocks))
        elif self._ready is not None:
            self._committing = True
            self.state = SourceState.COMMITTING
            self._wait(now)
            self._actions.append(Commit(self._ready))

    def _note_refusal(self, now: float) -> None:
        if self._ready is None:
            return
        if self._refused_since_s is None:
            self._refused_since_s = now
        elif now - self._refused_since_s >= self._lease_s:
            error = OverloadedError(f"the sink had no blocks for {self._lease_s:g} s")
            self._fail(SourceState.FAILED, error)

    def _wait(self, now: float) -> None:
        """The sink has been asked for something. A question asked again is the same wait."""
        if self._waits_since_s is None:
            self._waits_since_s = now

    def _fail(self, state: SourceState, error: SlipstreamError) -> None:
        if self.state.is_open:
            self.state = state
            self._error = error
            self._stop(str(error))

    def _stop(self, reason: str) -> None:
        self._waits_since_s = None
        self._actions.append(Stop(reason))

    def _try_end(self) -> None:
        if not self._ended and not self._pushing:
            self._ended = True
            self._actions.append(End(self.state, self._error))


def _missing(maps: Iterable[GroupMap]) -> frozenset[BlockRef]:
    return frozenset(BlockRef(group.group_id, logical) for group in maps for logical in group.missing)
