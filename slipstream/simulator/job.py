"""One request on its way through the simulated fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipstream.simulator.trace import TraceRequest

if TYPE_CHECKING:
    from router.planning.worker_account import Charge, WorkerAccount
    from slipstream.simulator.decode_worker import SimulatedDecodeWorker
    from slipstream.simulator.prefill_worker import SimulatedPrefillWorker


@dataclass(slots=True, eq=False)
class Job:
    """Owned by the dispatcher; the workers that it is at keep their own counts in it.

    `attempt` tells late events of an attempt that was given up from those of this one.
    """

    request: TraceRequest
    number: int
    router_index: int
    attempt: int = 0
    # The router's books.
    account: WorkerAccount | None = None
    charge: Charge | None = None
    guess_slot: int | None = None
    num_guessed_from: int = 0
    # At prefill. Tokens computed or found; blocks of the prompt in use there; blocks found at the start.
    prefill: SimulatedPrefillWorker | None = None
    num_expected_tokens: int = 0
    num_computed_tokens: int = 0
    num_prefill_blocks: int = 0
    num_hit_blocks: int = 0
    first_token_s: float | None = None
    # At decode. When its blocks are expected to be asked for, and when it got them; blocks of the prompt that were held
    # then, and those in use.
    decode: SimulatedDecodeWorker | None = None
    map_at_s: float = 0.0
    mapped_s: float | None = None
    num_decode_held: int = 0
    num_decode_blocks: int = 0
    # On the way. How often it was judged when to ask for places; tokens given to the transfer, and when the last of
    # them will have arrived.
    has_asked: bool = False
    num_looks: int = 0
    num_sent_tokens: int = 0
    transferred_s: float = 0.0

    @property
    def num_remaining_tokens(self) -> int:
        """Of prefill."""
        return self.request.num_tokens - self.num_computed_tokens
