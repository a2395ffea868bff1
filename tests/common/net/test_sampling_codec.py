"""Sampling parameters on the wire: what is set arrives, what is not is the model's."""

from __future__ import annotations

from dataclasses import replace

from common.net.sampling_codec import decode_sampling, encode_sampling
from common.request import SamplingParams
from protos import sampling_pb2

OWN = SamplingParams(temperature=0.7, top_p=0.8, top_k=20, min_p=0.1, repetition_penalty=1.05)


def test_defaults_are_for_what_is_absent() -> None:
    assert decode_sampling(sampling_pb2.SamplingParams(), OWN) == OWN
    message = sampling_pb2.SamplingParams(temperature=0.0, top_k=0, min_p=0.0)
    assert decode_sampling(message, OWN) == replace(OWN, temperature=0.0, top_k=0, min_p=0.0)


def test_what_was_encoded_takes_no_defaults() -> None:
    assert decode_sampling(encode_sampling(SamplingParams()), OWN) == SamplingParams()
