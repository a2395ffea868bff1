"""Builders of what the router's parts are given."""

from __future__ import annotations

from pathlib import Path

from common.config import Role
from common.request import WorkerId
from router.text import TextModel
from router.worker_info import WorkerInfo
from tests.support.tokenizers import byte_level_tokenizer


def worker_info(worker_id: str = "worker", role: Role = Role.DECODE, address: str = "127.0.0.1:1") -> WorkerInfo:
    return WorkerInfo(
        worker_id=WorkerId(worker_id),
        incarnation=1,
        role=role,
        address=address,
        model="model",
        max_model_len=1024,
        vocab_size=512,
        eos_token_ids=(0,),
        block_size=16,
        num_bytes_per_block=4096,
        key_root=bytes(16),
        layout_fingerprint=bytes(16),
        index_stride=64,
        draining=False,
        backend="scripted",
    )


def text_model(folder: Path) -> TextModel:
    """A byte-level tokenizer without a chat template."""
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"max_position_embeddings": 1024}')
    return TextModel.load(folder)
