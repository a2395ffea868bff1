"""Mirrors csrc/abi.h: the structs that calls take. Pointers are addresses; who builds one keeps its memory alive."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p

import torch

ABI_VERSION = 3
ISA_NAMES = {1: "avx2", 2: "avx512_bf16"}
DTYPES = {torch.float32: 0, torch.bfloat16: 1}


class Matrix(ctypes.Structure):
    _fields_ = (("panels", c_void_p), ("bias", c_void_p), ("num_outputs", c_int64), ("depth", c_int64))


class KvCache(ctypes.Structure):
    _fields_ = (
        ("key", c_void_p),
        ("value", c_void_p),
        ("block_stride", c_int64),
        ("head_stride", c_int64),
        ("token_stride", c_int64),
        ("block_size", c_int64),
    )


class HeadShape(ctypes.Structure):
    _fields_ = (("num_q_heads", c_int64), ("num_kv_heads", c_int64), ("head_dim", c_int64))


class LinearCall(ctypes.Structure):
    _fields_ = (
        ("input", c_void_p),
        ("input_stride", c_int64),
        ("num_rows", c_int64),
        ("weight", Matrix),
        ("output", c_void_p),
        ("output_stride", c_int64),
        ("float_output", c_int32),
        ("silu_gate", c_int32),
        ("scratch", c_void_p),
    )


class AttentionRows(ctypes.Structure):
    _fields_ = (("count", c_int64), ("rows", c_void_p), ("requests", c_void_p), ("positions", c_void_p))


class AttentionChunk(ctypes.Structure):
    _fields_ = (("first_row", c_int64), ("num_queries", c_int64), ("seq_len", c_int64), ("request", c_int64))


class AttentionCall(ctypes.Structure):
    _fields_ = (
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("query_stride", c_int64),
        ("key_stride", c_int64),
        ("value_stride", c_int64),
        ("num_tokens", c_int64),
        ("slots", c_void_p),
        ("cache", KvCache),
        ("heads", HeadShape),
        ("block_tables", c_void_p),
        ("table_stride", c_int64),
        ("rows", AttentionRows),
        ("chunks", POINTER(AttentionChunk)),
        ("num_chunks", c_int64),
        ("window", c_int64),
        ("scale", c_float),
        ("output", c_void_p),
        ("scratch", c_void_p),
    )


class DecoderLayer(ctypes.Structure):
    _fields_ = (
        ("attention_norm", c_void_p),
        ("qkv", Matrix),
        ("qk_norm", c_void_p),
        ("output", Matrix),
        ("mlp_norm", c_void_p),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("cache", KvCache),
        ("window", c_int64),
    )


class Decoder(ctypes.Structure):
    _fields_ = (
        ("num_layers", c_int64),
        ("hidden_size", c_int64),
        ("intermediate_size", c_int64),
        ("heads", HeadShape),
        ("epsilon", c_float),
        ("scale", c_float),
        ("embedding", c_void_p),
        ("rotary", c_void_p),
        ("norm", c_void_p),
        ("layers", POINTER(DecoderLayer)),
    )


class StepCall(ctypes.Structure):
    _fields_ = (
        ("decoder", POINTER(Decoder)),
        ("num_rows", c_int64),
        ("token_ids", c_void_p),
        ("slots", c_void_p),
        ("block_tables", c_void_p),
        ("table_stride", c_int64),
        ("rows", AttentionRows),
        ("chunks", POINTER(AttentionChunk)),
        ("num_chunks", c_int64),
        ("hidden", c_void_p),
        ("scratch", c_void_p),
    )


class DrawRow(ctypes.Structure):
    _fields_ = (
        ("logits_row", c_int64),
        ("temperature", c_double),
        ("min_p", c_double),
        ("top_p", c_double),
        ("top_k", c_int64),
        ("seed", c_uint64),
        ("choice", c_uint64),
        ("position", c_uint64),
    )


class DrawCall(ctypes.Structure):
    _fields_ = (
        ("logits", c_void_p),
        ("logits_stride", c_int64),
        ("vocab_size", c_int64),
        ("rows", POINTER(DrawRow)),
        ("num_rows", c_int64),
        ("token_ids", POINTER(c_int64)),
        ("scratch", c_void_p),
    )
