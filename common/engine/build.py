"""Puts an engine together from its settings: model, KV cache, manager, sampler, runner."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from common.attention.native_attention import NativeAttention
from common.config import EngineConfig
from common.engine.engine import Engine
from common.engine.kv_cache import KVCache
from common.engine.memory_plan import MemoryNeeds, plan_memory
from common.engine.model_runner import ModelRunner
from common.engine.sampler import Sampler
from common.engine.scheduler_config import SchedulerConfig
from common.kv.block_key import BlockKey, KeyRoot, root_key
from common.kv.manager import KVCacheManager
from common.model.free_memory import free_memory
from common.model.loader import describe_model, load_model
from common.model.weight_layout import WeightLayout

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEngine:
    """An engine, and what its worker must know to register and to move blocks."""

    engine: Engine
    kv_cache: KVCache
    served_name: str
    model_fingerprint: bytes  # 16 bytes
    key_root: BlockKey  # root of block keys without salts
    max_model_len: int  # tokens
    vocab_size: int
    eos_token_ids: frozenset[int]
    backend: str  # attention backend and device


def build_engine(
    config: EngineConfig, *, hand_back_when_preempted: bool, layout: WeightLayout = WeightLayout.BOTH
) -> BuiltEngine:
    """Loads the model and makes the pool.

    Raises ConfigError, UnsupportedModelError or InsufficientMemoryError, each with what to change.
    """
    model = describe_model(config, layout)
    plan = plan_memory(
        config,
        MemoryNeeds(
            weight_bytes=model.weight_bytes,
            activation_bytes=model.activation_bytes,
            free_bytes=free_memory(model.device),
            host_free_bytes=None if model.device.type == "cpu" else free_memory(torch.device("cpu")),
            spec=model.spec,
            max_model_len=model.max_model_len,
            max_num_batched_tokens=model.max_num_batched_tokens,
        ),
    )
    logger.info("%s", plan)
    causal_lm = load_model(model)
    kv_cache = KVCache(
        spec=model.spec, num_blocks=plan.num_blocks, device=model.device, num_host_blocks=plan.num_host_blocks
    )
    key_root = root_key(
        KeyRoot(
            model_fingerprint=model.fingerprint,
            weight_dtype=model.dtype,
            kv_dtype=model.dtype,
            layout_fingerprint=model.spec.fingerprint(),
            block_size=config.block_size,
        )
    )
    eos_token_ids = model.eos_token_ids
    library = causal_lm.attention.library if isinstance(causal_lm.attention, NativeAttention) else None
    engine = Engine(
        runner=ModelRunner(model=causal_lm, kv_cache=kv_cache, sampler=Sampler(eos_token_ids, library)),
        kv=KVCacheManager(
            spec=model.spec, num_blocks=plan.num_blocks, key_root=key_root, num_host_blocks=plan.num_host_blocks
        ),
        config=SchedulerConfig.from_engine_config(config, max_num_batched_tokens=model.max_num_batched_tokens),
        eos_token_ids=eos_token_ids,
        max_model_len=model.max_model_len,
        vocab_size=model.architecture.vocab_size,
        hand_back_when_preempted=hand_back_when_preempted,
    )
    return BuiltEngine(
        engine=engine,
        kv_cache=kv_cache,
        served_name=model.served_name,
        model_fingerprint=model.fingerprint,
        key_root=key_root,
        max_model_len=model.max_model_len,
        vocab_size=model.architecture.vocab_size,
        eos_token_ids=eos_token_ids,
        backend=f"{causal_lm.attention.description}, {model.device.type}",
    )
