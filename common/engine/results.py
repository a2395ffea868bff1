"""What an engine tells its worker: reservations, and what each step brought. Mirrors protos/worker.proto."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from common.cost import StepTimes
from common.errors import Status
from common.kv.block_map import GroupMap
from common.kv.first_token import FirstToken
from common.request import FinishReason, Leg, RequestId, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Room for a transfer's blocks, and where they go. `credit_tokens` counts those and the outputs expected."""

    reservation_id: str
    maps: tuple[GroupMap, ...] | None  # None: told by `Engine.map_reservation`
    credit_tokens: int
    cached_blocks: int
    num_tokens: int  # tokens whose KV must be there at commit


@dataclass(frozen=True, slots=True, kw_only=True)
class LegStart:
    """Told once, with the first token that a leg draws here."""

    cached_tokens: int  # prompt tokens whose KV was reused
    queue_s: float  # from submit until the first step
    prefill_s: float  # from the first step until the first token
    prompt_logprobs: tuple[TokenLogprob, ...] = ()  # of prompt tokens 1, 2, …


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOutput:
    """Tokens of one choice. `first_index` is the place of the first of them among the choice's outputs."""

    request_id: RequestId
    attempt: int
    choice_index: int
    first_index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None  # the one of the request's stop_token_ids that ended it
    start: LegStart | None = None


class LegEndReason(StrEnum):
    PREEMPTED = "preempted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class LegEnded:
    """Choices that ended otherwise than by a finish reason. `status` is set when it is an error."""

    request_id: RequestId
    attempt: int
    choice_indices: tuple[int, ...]
    reason: LegEndReason
    status: Status | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksComputed:
    """Blocks of a leg to hand over whose KV is complete since the last step, prefix hits and the partial last one
    included. They stay as they are until `Engine.release_lease`."""

    request_id: RequestId
    attempt: int
    choice_indices: tuple[int, ...]
    group_id: int
    first_logical_block: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """A leg to hand over has drawn its first tokens, and at least one choice goes on."""

    request_id: RequestId
    attempt: int
    choice_indices: tuple[int, ...]
    num_computed_tokens: int
    first_tokens: tuple[FirstToken, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChoice:
    """A choice that was stopped between two steps, in the words of a hand-over: `blocks`, then `handed_over`.

    `leg` is what the sink must reserve: this choice with its outputs but the last one, whose KV was never computed.
    That one is the first token of `handed_over`. The attempt is the stopped one's; a move has an attempt of its own.
    """

    leg: Leg
    blocks: tuple[BlocksComputed, ...]  # one per group, all blocks from the first on
    handed_over: HandedOver


@dataclass(slots=True, kw_only=True)
class StepResult:
    """What one step brought. Owner: whoever called `Engine.step`."""

    tokens: list[TokenOutput] = field(default_factory=list)
    ends: list[LegEnded] = field(default_factory=list)
    computed: list[BlocksComputed] = field(default_factory=list)
    handed_over: list[HandedOver] = field(default_factory=list)
    num_scheduled_tokens: int = 0

    def add(self, part: StepResult) -> None:
        """Takes in what one sequence brought."""
        self.tokens += part.tokens
        self.ends += part.ends
        self.computed += part.computed
        self.handed_over += part.handed_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a worker reports of its engine. Counters only rise."""

    num_running: int  # choices in the batch
    num_waiting: int  # sequences in the queue
    num_swapped: int  # choices whose KV waits on the host
    num_waiting_tokens: int  # tokens that queue and batch still have to prefill
    num_reservations: int  # reservations not yet committed
    num_blocks: int
    num_free_blocks: int  # empty or cached, free to take
    num_cached_blocks: int  # with a key, used or not
    num_quarantined_blocks: int
    prefix_query_tokens: int  # counter: tokens looked up in the prefix cache
    prefix_hit_tokens: int  # counter: tokens found there
    num_preemptions: int  # counter: sequences that lost their KV to others
    num_host_blocks: int  # of the host pool, for KV that is swapped out
    num_free_host_blocks: int
    num_swap_outs: int  # counter: sequences that were moved to the host
    swapped_out_blocks: int  # counter: blocks copied to the host
    swapped_in_blocks: int  # counter: blocks copied back
    num_generated_tokens: int  # counter
    num_prefilled_tokens: int  # counter: tokens computed that were not just sampled
    max_num_seqs: int  # choices that the batch can hold
    num_running_tokens: int  # tokens of KV that a decode step of the batch reads
    queue_s: float  # prefill work of queue and batch, by step_times
    busy_s: float  # counter: time spent in steps
    step_times: StepTimes  # fitted to this engine's own steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrity:
    """The books, after they were found to be right."""

    num_blocks: int
    num_free_blocks: int  # empty or cached without a user
    num_used_blocks: int
    num_quarantined_blocks: int
    num_used_host_blocks: int  # of the host pool
    num_reservations: int  # open, or in quarantine
    num_requests: int  # sequences in queue or batch, or leased for a transfer
