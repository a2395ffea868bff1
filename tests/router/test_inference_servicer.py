"""The Inference service over a scripted core."""

from __future__ import annotations

from typing import Any

from common.request import SamplingParams
from protos import inference_pb2, sampling_pb2
from router.api.inference import InferenceServicer
from tests.support.scripted_generator import ScriptedGenerator


class Context:
    def time_remaining(self) -> float | None:
        return None

    async def write(self, message: inference_pb2.GenerateResponse) -> None: ...


async def test_what_a_caller_leaves_open_is_sampled_as_the_model_says() -> None:
    generator, context = ScriptedGenerator(), Context()
    servicer: Any = InferenceServicer(generator, SamplingParams(temperature=0.7, top_k=20))
    await servicer.Generate(inference_pb2.GenerateRequest(text="x"), context)
    sampling = sampling_pb2.SamplingParams(temperature=0, top_k=0)
    await servicer.Generate(inference_pb2.GenerateRequest(text="x", sampling=sampling), context)
    taken = [(command.sampling.temperature, command.sampling.top_k) for command in generator.commands]
    assert taken == [(0.7, 20), (0.0, 0)]
