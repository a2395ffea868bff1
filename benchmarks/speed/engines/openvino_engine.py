"""OpenVINO GenAI's ContinuousBatchingPipeline in bf16, on a model that optimum-intel exports in fp16."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import numpy as np
import openvino
import openvino_genai

from benchmarks.speed.engines.stepped import run_stepped
from benchmarks.speed.request import Answer, Request

KV_GIB = 2
MAX_BATCHED_TOKENS = 2048
MAX_REQUESTS = 64


class OpenVinoEngine:
    """Not for threads."""

    def __init__(self, pipeline: openvino_genai.ContinuousBatchingPipeline) -> None:
        self._pipeline = pipeline
        self._handles: dict[int, openvino_genai.GenerationHandle] = {}
        self._ids = count()
        self.version = openvino_genai.__version__

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        answers = run_stepped(self, requests, concurrency)
        self._handles.clear()
        return answers

    def submit(self, number: int, request: Request) -> None:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = request.max_tokens
        config.ignore_eos = True
        config.do_sample = False
        input_ids = openvino.Tensor(np.array([request.token_ids], dtype=np.int64))  # [1, num_tokens]
        self._handles[number] = self._pipeline.add_request(next(self._ids), input_ids, config)

    def step(self) -> Iterable[tuple[int, int]]:
        self._pipeline.step()
        for number, handle in self._handles.items():
            if handle.can_read():
                yield number, sum(len(output.generated_ids) for output in handle.read().values())


def load(model: str, num_threads: int) -> OpenVinoEngine:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = KV_GIB
    scheduler.enable_prefix_caching = True
    scheduler.max_num_batched_tokens = MAX_BATCHED_TOKENS
    scheduler.max_num_seqs = MAX_REQUESTS
    properties = {
        "INFERENCE_PRECISION_HINT": "bf16",
        "KV_CACHE_PRECISION": "bf16",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        "INFERENCE_NUM_THREADS": str(num_threads),
    }
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(export(Path(model))), scheduler, "CPU", properties)
    return OpenVinoEngine(pipeline)


def export(model: Path) -> Path:
    """The model as OpenVINO's own files, made once."""
    folder = Path(sys.prefix) / "models" / model.name
    if not (folder / "openvino_model.bin").exists():
        program = str(Path(sys.executable).with_name("optimum-cli"))
        options = ["--task", "text-generation-with-past", "--weight-format", "fp16"]
        subprocess.run([program, "export", "openvino", "--model", str(model), *options, str(folder)], check=True)
    return folder
