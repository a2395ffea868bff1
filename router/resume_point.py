"""Checks that an answer can go on from where another router has left it."""

from __future__ import annotations

from common.errors import InvalidRequestError
from common.request import SamplingParams
from router.generation import ResumedChoice, ResumePoint


def check_resume_point(resume: ResumePoint, sampling: SamplingParams, prompt_digest: bytes, vocab_size: int) -> None:
    """`sampling` is as the caller sent it. Raises InvalidRequestError that names the field."""
    if sampling.seed is None:
        raise InvalidRequestError("seed", "must be given with resume_from: the one that the answer began with")
    if resume.prompt_digest != prompt_digest:
        raise InvalidRequestError(
            "resume_from.prompt_digest",
            "is another one than this prompt has here: the answer can't go on as it would have, ask anew",
        )
    if not any(choice.token_ids for choice in resume.choices):
        raise InvalidRequestError("resume_from.choices", "have no token yet: ask anew, without resume_from")
    indices = [choice.index for choice in resume.choices]
    if len(set(indices)) < len(indices) or any(index >= sampling.n for index in indices):
        raise InvalidRequestError("resume_from.choices", f"must be different ones of 0 to {sampling.n - 1}")
    for choice in resume.choices:
        _check_choice(choice, sampling, vocab_size)


def _check_choice(choice: ResumedChoice, sampling: SamplingParams, vocab_size: int) -> None:
    field = f"resume_from.choices[{choice.index}].token_ids"
    if sampling.max_tokens is not None and len(choice.token_ids) > sampling.max_tokens:
        raise InvalidRequestError(field, f"are {len(choice.token_ids)}, but max_tokens is {sampling.max_tokens}")
    for token_id in choice.token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequestError(field, f"token id {token_id} is not in 0 to {vocab_size - 1}")
