"""Both ends of transfers over a network that reorders, repeats, delays and loses, with aborts and restarts anywhere.

Whatever happens: a block is never free while it may be written, none leaks, nothing is decoded on KV that is not all
there, no block is given back at the source while it is read, and both ends end.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import SlipstreamError, UnavailableError
from common.kv.block_map import GroupMap
from common.kv.source_ticket import SourceTicket
from tests.support.transfer_network import LEASE_S, Stream, TransferNetwork
from tests.support.transfer_sink import SimulatedSink
from tests.support.transfer_sources import SimulatedSources

INDEX = st.integers(0, 999)
# Of what ends a transfer for good: often enough, but not so often that hardly any comes to its end.
SELDOM = st.sampled_from([False] * 5 + [True])


class TransferMachine(RuleBasedStateMachine):
    """A sink with a small pool, sources that come and go, and what may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.network = TransferNetwork()
        self.sink = SimulatedSink(self.network)
        self.sources = SimulatedSources(self.network, self.sink)
        self.transfers = self.network.transfers
        self.streams = self.network.streams
        self.messages = self.network.messages
        self.spoil: str | None = None

    @rule(num_blocks=st.integers(1, 3), num_present=st.integers(0, 1), late=st.booleans())
    def reserve(self, num_blocks: int, num_present: int, late: bool) -> None:
        if sum(one.ended is None for one in self.transfers) > 3:
            return
        transfer = self.sink.reserve(len(self.transfers), num_blocks=num_blocks, num_present=num_present)
        maps: tuple[GroupMap, ...] | None = None
        if not late:
            maps = self.sink.map(transfer) or None
            transfer.generation = int(maps is not None)
        self.transfers.append(transfer)
        transfer.source = SourceTicket(choice_indices=(0,), maps=maps, lease_s=LEASE_S)

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX)
    def compute(self, index: int) -> None:
        self.sources.compute(self.transfers[index % len(self.transfers)])

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX)
    def ask_map(self, index: int) -> None:
        self.sources.ask_map(self.transfers[index % len(self.transfers)])

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX, num_steps=st.integers(1, 40))
    def go_on(self, index: int, num_steps: int) -> None:
        """As it goes when nothing goes wrong: without it chance would hardly ever come to a commit."""
        transfer = self.transfers[index % len(self.transfers)]
        for _ in range(num_steps):
            stream = transfer.stream
            if stream is not None and stream.is_reading:
                self.sources.read(stream)
            elif stream is not None and stream.frames:
                self.write(stream)
            elif stream is not None and not stream.stopped:
                self.sources.end(stream)
            elif self.messages:
                self.messages.pop(0)()
            else:
                self.sources.compute(transfer)

    @precondition(lambda self: self.messages)
    @rule(index=INDEX)
    def deliver(self, index: int) -> None:
        self.messages.pop(index % len(self.messages))()

    @precondition(lambda self: self.messages)
    @rule(index=INDEX)
    def deliver_and_keep(self, index: int) -> None:
        """It comes twice: the second time whenever."""
        self.messages[index % len(self.messages)]()

    @precondition(lambda self: any(one.ended is None for one in self.transfers))
    @rule(index=INDEX, really=SELDOM)
    def lose_the_connection(self, index: int, really: bool) -> None:
        """What a source waits for is not answered: it asks again, or gives up by its lease."""
        waiting = [one for one in self.transfers if one.ended is None and one.source is not None]
        if really and waiting:
            self.sources.lose_connection(waiting[index % len(waiting)])

    @precondition(lambda self: any(one.is_reading for one in self.streams))
    @rule(index=INDEX)
    def read_block(self, index: int) -> None:
        reading = [one for one in self.streams if one.is_reading]
        self.sources.read(reading[index % len(reading)])

    @rule(how=st.sampled_from(["lost", "changed"]))
    def spoil_next_block(self, how: str) -> None:
        """The next frame that reaches the sink is lost or changed, and nobody is told."""
        self.spoil = how

    @precondition(lambda self: any(one.frames for one in self.streams))
    @rule(index=INDEX)
    def write_block(self, index: int) -> None:
        """The next frame of a stream reaches the sink."""
        moving = [one for one in self.streams if one.frames]
        self.write(moving[index % len(moving)])

    def write(self, stream: Stream) -> None:
        ref, content = stream.frames.popleft()
        spoil, self.spoil = self.spoil, None
        if spoil != "lost":
            self.sink.write(stream, ref, (-1, ref.logical_block) if spoil == "changed" else content)

    @precondition(lambda self: any(one.is_done for one in self.streams))
    @rule(index=INDEX)
    def end_stream(self, index: int) -> None:
        done = [one for one in self.streams if one.is_done]
        self.sources.end(done[index % len(done)])

    @precondition(lambda self: any(one.stopped and not one.closed for one in self.streams))
    @rule(index=INDEX)
    def notice_broken_stream(self, index: int) -> None:
        broken = [one for one in self.streams if one.stopped and not one.closed]
        stream = broken[index % len(broken)]
        self.sink.close(stream)
        stream.closed = True

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX, at_sink=st.booleans(), really=SELDOM)
    def abort(self, index: int, at_sink: bool, really: bool) -> None:
        """The router gives it up, at either end."""
        transfer = self.transfers[index % len(self.transfers)]
        if really and at_sink:
            self.sink.abort(transfer, "aborted")
        elif really:
            self.sources.give_up(transfer)

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX, really=SELDOM)
    def kill_source(self, index: int, really: bool) -> None:
        if really:
            self.sources.kill(self.transfers[index % len(self.transfers)])

    @rule(really=SELDOM)
    def restart_sink(self, really: bool) -> None:
        if really:
            self.sink.restart()

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.network.now += seconds
        self.sink.expire()
        self.sources.expire()

    @invariant()
    def the_books_agree(self) -> None:
        self.sink.check_integrity()
        for transfer in self.transfers:
            if transfer.source is not None:
                transfer.source.check_integrity()

    def teardown(self) -> None:
        """Everything is computed, and nobody says anything any more: both ends come to their end by themselves."""
        self.messages.clear()
        for stream in self.streams:
            source = stream.transfer.source
            if not stream.stopped and source is not None:
                stream.stop_reading()
                source.push_failed(UnavailableError("the network is gone"), self.network.now)
                self.sources.settle(stream.transfer)
            self.sink.close(stream)
        for transfer in self.transfers:
            for _ in range(transfer.num_blocks + 1):
                self.sources.compute(transfer)
        for _ in range(3):
            self.wait(LEASE_S + 1)
            for message in list(self.messages):
                with suppress(SlipstreamError):
                    message()
            self.messages.clear()
        for transfer in self.transfers:
            assert transfer.source is None or transfer.ended is not None, "a source waits for ever"
        self.sink.check_idle()


TestTransferMachine = TransferMachine.TestCase
TestTransferMachine.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
