"""Which checksum two ends agree on, and that commits of the first protocol are still read."""

from __future__ import annotations

import zlib

import pytest

from common.errors import TransferError
from common.kv.ticket import BlockRef
from common.transport.checksum import Checksum, RunningChecksum, choose_checksum
from common.transport.commit_codec import decode_commit, encode_commit
from protos import transfer_pb2 as pb


@pytest.mark.parametrize(
    ("wanted", "accepted", "chosen"),
    [
        (Checksum.XXH3_64, ("xxh3_64", "crc32"), Checksum.XXH3_64),
        (Checksum.XXH3_64, (), Checksum.CRC32),
        (Checksum.XXH3_64, ("crc32", "one of later"), Checksum.CRC32),
        (Checksum.NONE, ("xxh3_64", "crc32"), Checksum.XXH3_64),
        (Checksum.NONE, ("xxh3_64", "none"), Checksum.NONE),
    ],
)
def test_both_ends_know_what_is_chosen(wanted: Checksum, accepted: tuple[str, ...], chosen: Checksum) -> None:
    assert choose_checksum(wanted, accepted) is chosen


def test_every_bit_counts() -> None:
    data = bytearray(range(256)) * 16
    before = {checksum: checksum.of(memoryview(data)) for checksum in Checksum}
    data[1234] ^= 1
    assert {checksum for checksum in Checksum if checksum.of(memoryview(data)) == before[checksum]} == {Checksum.NONE}


@pytest.mark.parametrize("checksum", Checksum)
def test_portions_give_the_checksum_of_the_whole(checksum: Checksum) -> None:
    data = memoryview(bytes(range(256)) * 5)
    running = RunningChecksum(checksum)
    for start, end in ((0, 1), (1, 1000), (1000, 1000), (1000, len(data))):
        running.update(data[start:end])
    assert running.value == checksum.of(data)


@pytest.mark.parametrize("checksum", Checksum)
def test_commits_survive_the_wire(checksum: Checksum) -> None:
    checksums = {BlockRef(0, 3): checksum.of(memoryview(b"a")), BlockRef(1, 0): checksum.of(memoryview(b"b"))}
    request = encode_commit(
        ticket_id="t",
        generation=2,
        num_computed_tokens=32,
        checksums=checksums,
        checksum=checksum,
        first_tokens=(),
        attempt=1,
    )
    read, commit = decode_commit(pb.CommitRequest.FromString(request.SerializeToString()))
    assert read is checksum
    assert commit.checksums == checksums


def test_a_commit_of_the_first_protocol_has_crc32() -> None:
    group = pb.GroupCommit(group_id=0, logical_blocks=[1], checksums=[zlib.crc32(b"a")])
    read, commit = decode_commit(pb.CommitRequest(ticket_id="t", groups=[group]))
    assert read is Checksum.CRC32
    assert commit.checksums == {BlockRef(0, 1): Checksum.CRC32.of(memoryview(b"a"))}


def test_a_commit_that_lacks_a_checksum_is_refused() -> None:
    group = pb.GroupCommit(group_id=0, logical_blocks=[1, 2], digests=[7])
    with pytest.raises(TransferError, match="number"):
        decode_commit(pb.CommitRequest(groups=[group], checksum_kind=pb.CHECKSUM_KIND_XXH3_64))
