"""The sources of transfers in a test: they come and go, and each has the ticket that is tested."""

from __future__ import annotations

from collections import deque

from common.errors import SlipstreamError, StaleTicketError, UnavailableError
from common.kv.block_map import GroupMap
from common.kv.source_ticket import AskMap, Commit, End, KVReady, Push, SourceTicket, Stop
from common.kv.ticket import BlockRef
from tests.support.transfer_network import Stream, Transfer, TransferNetwork
from tests.support.transfer_sink import SimulatedSink


class SimulatedSources:
    """Does what the tickets want done, and asserts that nothing is read or ended that must not be."""

    def __init__(self, network: TransferNetwork, sink: SimulatedSink) -> None:
        self._network = network
        self._sink = sink

    def compute(self, transfer: Transfer) -> None:
        """The next block; all of them are handed over."""
        source = transfer.source
        if source is None or transfer.ended is not None:
            return
        if transfer.num_computed < transfer.num_blocks:
            block = (BlockRef(0, transfer.num_computed), 100 + transfer.num_computed)
            transfer.num_computed += 1
            source.computed([block], self._network.now)
        else:
            source.handed_over(
                KVReady(num_computed_tokens=transfer.num_blocks * 8, first_tokens=(), attempt=1), self._network.now
            )
        self.settle(transfer)

    def ask_map(self, transfer: Transfer) -> None:
        if transfer.source is not None:
            transfer.source.ask_map(self._network.now)
            self.settle(transfer)

    def read(self, stream: Stream) -> None:
        """The next block of a stream, which is on its way from now on."""
        transfer = stream.transfer
        if transfer.source is None:
            return
        assert transfer.ended is None, "a block is read after it was given back"
        ref, _ = stream.unread.popleft()
        content = transfer.sent[ref] = (transfer.number, ref.logical_block)
        stream.frames.append((ref, content))

    def end(self, stream: Stream) -> None:
        """All was sent and written: the sink ends the stream, and the source hears of it."""
        transfer = stream.transfer
        refused = (stream.closed and stream.sink_life == self._sink.life) or stream.sink_life != self._sink.life
        self._sink.close(stream)
        stream.stopped = stream.closed = True
        if transfer.source is not None:
            if refused:
                transfer.source.push_failed(StaleTicketError("refused"), self._network.now)
            else:
                transfer.source.push_ended(self._network.now)
            self.settle(transfer)

    def lose_connection(self, transfer: Transfer) -> None:
        """What it waits for is not answered."""
        assert transfer.source is not None
        if transfer.stream is not None and transfer.stream.is_reading:
            transfer.stream.stop_reading()
            transfer.source.push_failed(UnavailableError("lost"), self._network.now)
        else:
            transfer.source.commit_lost(self._network.now)
        self.settle(transfer)

    def give_up(self, transfer: Transfer) -> None:
        if transfer.source is not None:
            transfer.source.give_up("aborted", self._network.now)
            self.settle(transfer)

    def kill(self, transfer: Transfer) -> None:
        transfer.source = None
        if transfer.stream is not None and not transfer.stream.stopped:
            transfer.stream.stop_reading()

    def expire(self) -> None:
        for transfer in self._network.transfers:
            if transfer.source is not None:
                transfer.source.expire(self._network.now)
                self.settle(transfer)

    def settle(self, transfer: Transfer) -> None:
        """Does what the ticket has queued."""
        source, messages = transfer.source, self._network.messages
        if source is None:
            return
        for action in source.drain_actions():
            match action:
                case AskMap():
                    messages.append(lambda: self._take_map_request(transfer, source))
                case Push(blocks=blocks):
                    assert transfer.stream is None or transfer.stream.stopped or not transfer.stream.unread
                    transfer.stream = Stream(transfer, deque(blocks), sink_life=self._sink.life)
                    self._network.streams.append(transfer.stream)
                case Commit(ready=ready):
                    messages.append(lambda ready=ready: self._take_commit(transfer, source, ready))
                case Stop():
                    messages.append(lambda: self._sink.abort(transfer, "the source gave up"))
                    if transfer.stream is not None and not transfer.stream.stopped:
                        messages.append(lambda stream=transfer.stream: self._stop(stream))
                case End():
                    assert transfer.ended is None, "it ended twice"
                    assert transfer.stream is None or transfer.stream.stopped or not transfer.stream.unread
                    transfer.ended = action

    def _stop(self, stream: Stream) -> None:
        if not stream.stopped:
            stream.stop_reading()
            if stream.transfer.source is not None:
                stream.transfer.source.push_ended(self._network.now)
                self.settle(stream.transfer)

    def _take_map_request(self, transfer: Transfer, source: SourceTicket) -> None:
        maps: tuple[GroupMap, ...] = ()
        error: SlipstreamError | None = None
        try:
            maps = self._sink.map(transfer)
        except SlipstreamError as raised:
            error = raised
        self._sink.settle()

        def answer() -> None:
            if transfer.source is not source:
                return
            if error is not None:
                source.failed(error, self._network.now)
            elif maps:
                transfer.generation = 1
                source.mapped(maps, self._network.now)
            else:
                source.map_refused(self._network.now, answered=True)
            self.settle(transfer)

        self._network.messages.append(answer)

    def _take_commit(self, transfer: Transfer, source: SourceTicket, ready: KVReady) -> None:
        error: SlipstreamError | None = None
        try:
            self._sink.commit(transfer, ready)
        except SlipstreamError as raised:
            error = raised
        self._sink.settle()

        def answer() -> None:
            if transfer.source is not source:
                return
            if error is None:
                source.committed(self._network.now)
            else:
                source.commit_refused(error, self._network.now)
            self.settle(transfer)

        self._network.messages.append(answer)
