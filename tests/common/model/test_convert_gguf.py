"""The demo model's folder against the GGUF file that it was made of."""

from __future__ import annotations

from pathlib import Path

import torch
from gguf import GGUFReader, dequantize

from common.checkpoint.demo import demo_gguf
from common.model.checkpoint import Checkpoint

# GGUF name → checkpoint name; queries and keys are stored with their rows in another order
PLAIN = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "blk.0.attn_v.weight": "model.layers.0.self_attn.v_proj.weight",
    "blk.29.ffn_down.weight": "model.layers.29.mlp.down_proj.weight",
}
NUM_Q_HEADS, HEAD_DIM = 9, 64


def test_weights_are_the_dequantised_ones_in_bfloat16(demo_model: Path) -> None:
    tensors = {tensor.name: tensor for tensor in GGUFReader(demo_gguf()).tensors}

    def original(name: str) -> torch.Tensor:
        tensor = tensors[name]
        return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).bfloat16()

    checkpoint = Checkpoint.open(demo_model)
    assert len(checkpoint.entries) == len(tensors)
    assert {entry.dtype for entry in checkpoint.entries.values()} == {"bfloat16"}
    with checkpoint.reader() as reader:
        for theirs, ours in PLAIN.items():
            assert torch.equal(reader.read(ours), original(theirs))
        interleaved = original("blk.3.attn_q.weight").view(NUM_Q_HEADS, HEAD_DIM // 2, 2, -1)
        halves = interleaved.transpose(1, 2).reshape(NUM_Q_HEADS * HEAD_DIM, -1)
        assert torch.equal(reader.read("model.layers.3.self_attn.q_proj.weight"), halves)
