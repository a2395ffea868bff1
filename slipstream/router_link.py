"""The connection to one router, and the calls that are on it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from protos import admin_pb2_grpc, inference_pb2_grpc

ChannelT = TypeVar("ChannelT")


class RouterLink(Generic[ChannelT]):
    """A channel with its stubs. Owned by its client, which opens another one in place of a link that is `retired`.

    One that `has_answered` and is silent now may lead nowhere any more, while its router is well. A retired link is
    closed when its last call has ended: what is silent for one call need not be for all.
    """

    def __init__(self, channel: ChannelT) -> None:
        self.channel = channel
        # The stubs are typed for blocking channels, and serve both kinds.
        self.inference: Any = inference_pb2_grpc.InferenceStub(channel)
        self.admin: Any = admin_pb2_grpc.AdminStub(channel)
        self.num_calls = 0
        self.retired = False
        self.has_answered = False

    @property
    def to_be_closed(self) -> bool:
        return self.retired and self.num_calls == 0
