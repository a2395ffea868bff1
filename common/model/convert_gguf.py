"""`python -m common.model.convert_gguf FILE FOLDER`: writes a GGUF file as a Hugging Face folder in bfloat16."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from gguf import GGUFReader
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from common.errors import UnsupportedModelError
from common.model.gguf_config import GGUFHeader

WEIGHTS_NAME = "model.safetensors"


def convert(gguf: Path, folder: Path) -> None:
    """Weights (dequantised, bf16 safetensors), config, generation config, tokenizer, chat template.

    Raises UnsupportedModelError when the model, or its RoPE scaling, is not built.
    """
    header = GGUFHeader(GGUFReader(gguf))
    header.check_supported()
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    header.complete(config)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)  # names and shapes only
    loaded = load_gguf_checkpoint(gguf, return_tensors=True, model_to_load=skeleton, torch_dtype=torch.bfloat16)
    tensors = _complete(skeleton, loaded["tensors"])
    save_file(tensors, folder / WEIGHTS_NAME, metadata={"format": "pt"})
    (folder / WEIGHTS_NAME).chmod(0o644)
    config.architectures = [type(skeleton).__name__]
    config.dtype = torch.bfloat16
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    generation_config = GenerationConfig.from_model_config(config)
    if tokenizer.eos_token_id is not None:
        config.eos_token_id = generation_config.eos_token_id = tokenizer.eos_token_id
    config.save_pretrained(folder)
    generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _complete(skeleton: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors that a checkpoint holds, checked. A tied head is the embedding's and not written."""
    shapes = {name: parameter.shape for name, parameter in skeleton.named_parameters()}
    missing = sorted(shapes.keys() - tensors.keys())
    if missing:
        raise UnsupportedModelError(f"the GGUF file lacks {len(missing)} tensors, such as {missing[0]}")
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise UnsupportedModelError(f"{name} has shape {list(tensors[name].shape)}, should have {list(shape)}")
    return {name: tensors[name].contiguous() for name in shapes}


def main() -> None:
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except UnsupportedModelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
