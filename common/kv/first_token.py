"""The token that a prefill leg drew for one choice: what a commit carries beside the blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """`finished` says that this token ended the choice: nobody must decode it further."""

    choice_index: int
    token_id: int
    finished: bool
