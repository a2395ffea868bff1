"""The demo model's weights as a bf16 GGUF file, for llama.cpp: the same file with its tensors dequantised."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from common.checkpoint.cache import cache_folder, made_once
from common.checkpoint.demo import demo_gguf

FILE_NAME = "demo-bf16.gguf"
# The writer sets these itself.
WRITTEN_FIELDS = ("GGUF.", "general.architecture", "general.quantization_version", "general.file_type")


def bfloat16_gguf() -> Path:
    """Made the first time. Raises UnavailableError when the demo model can't be had."""
    return made_once(cache_folder() / "peers" / "demo-bf16-gguf", _write) / FILE_NAME


def _write(folder: Path) -> None:
    reader = gguf.GGUFReader(demo_gguf())
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(folder / FILE_NAME, architecture)
    for name, field in reader.fields.items():
        if not name.startswith(WRITTEN_FIELDS):
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
        else:
            data = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(tensor.name, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
