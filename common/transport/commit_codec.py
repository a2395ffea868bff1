"""Commits on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.errors import TransferError
from common.kv.first_token import FirstToken
from common.kv.ticket import BlockRef, RankCommit
from common.transport.checksum import Checksum, decode_checksum, encode_checksum
from protos import transfer_pb2 as pb


def encode_groups(checksums: Mapping[BlockRef, int], checksum: Checksum) -> list[pb.GroupCommit]:
    groups: dict[int, pb.GroupCommit] = {}
    for ref, value in checksums.items():
        group = groups.setdefault(ref.group_id, pb.GroupCommit(group_id=ref.group_id))
        group.logical_blocks.append(ref.logical_block)
        match checksum:
            case Checksum.XXH3_64:
                group.digests.append(value)
            case Checksum.CRC32:
                group.checksums.append(value)
    return list(groups.values())


def encode_commit(
    *,
    ticket_id: str,
    generation: int,
    num_computed_tokens: int,
    checksums: Mapping[BlockRef, int],
    checksum: Checksum,
    first_tokens: Sequence[FirstToken],
    attempt: int,
) -> pb.CommitRequest:
    """Of the one source rank that there is."""
    return pb.CommitRequest(
        ticket_id=ticket_id,
        generation=generation,
        rank=0,
        num_ranks=1,
        num_computed_tokens=num_computed_tokens,
        groups=encode_groups(checksums, checksum),
        first_tokens=[
            pb.FirstToken(choice_index=token.choice_index, token_id=token.token_id, finished=token.finished)
            for token in first_tokens
        ],
        attempt=attempt,
        checksum_kind=encode_checksum(checksum),
    )


def decode_commit(request: pb.CommitRequest) -> tuple[Checksum, RankCommit]:
    """Raises TransferError when it contradicts itself, or names a checksum that is unknown here."""
    checksum = decode_checksum(request.checksum_kind)
    if checksum is None:
        raise TransferError(f"commit: checksum kind {request.checksum_kind} is unknown here")
    checksums: dict[BlockRef, int] = {}
    for group in request.groups:
        refs = [BlockRef(group.group_id, logical_block) for logical_block in group.logical_blocks]
        values = _values(group, checksum)
        if len(values) != len(refs):
            raise TransferError("commit: blocks and checksums differ in number")
        checksums.update(zip(refs, values, strict=True))
    commit = RankCommit(
        generation=request.generation,
        rank=request.rank,
        num_ranks=request.num_ranks,
        num_computed_tokens=request.num_computed_tokens,
        checksums=checksums,
        first_tokens=tuple(
            FirstToken(choice_index=token.choice_index, token_id=token.token_id, finished=token.finished)
            for token in request.first_tokens
        ),
        attempt=request.attempt,
    )
    return checksum, commit


def _values(group: pb.GroupCommit, checksum: Checksum) -> Sequence[int]:
    match checksum:
        case Checksum.XXH3_64:
            return group.digests
        case Checksum.CRC32:
            return group.checksums
        case Checksum.NONE:
            return [0] * len(group.logical_blocks)
