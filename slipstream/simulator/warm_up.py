"""What a simulated worker knows of its own speed when it begins to serve."""

from __future__ import annotations

from common.cost import DecodeWork, PrefillWork, StepTimeFit, StepTimes
from slipstream.simulator.profile import Profile

# Of no machine in particular, as a worker's before its first step.
PRIOR = StepTimes(step_s=5e-3, prefill_token_s=1e-4, prefill_pair_s=1e-9, decode_request_s=1e-3, decode_kv_token_s=1e-7)
# Requests of the decode steps, each with so many tokens of KV.
BATCH_SIZES = (1, 8)
NUM_KV_TOKENS = 1024


def warmed_up_fit(profile: Profile) -> StepTimeFit:
    """A few steps of several sizes have run: without long ones, a router would know nothing of long prompts."""
    fit = StepTimeFit(PRIOR)
    for num_tokens in (1, 32, max(1, profile.chunk_tokens // 4), profile.chunk_tokens):
        prefill = PrefillWork.of(num_tokens, 0)
        fit.add(prefill, DecodeWork(), profile.model.prefill_step_s(prefill))
    for num_requests in BATCH_SIZES:
        decode = DecodeWork(num_requests, num_requests * NUM_KV_TOKENS)
        lines = profile.model.decode_lines(num_requests)
        fit.add(PrefillWork(), decode, max(line.at(decode.num_kv_tokens) for line in lines))
    return fit
