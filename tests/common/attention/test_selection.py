import logging

import pytest
import torch

from common.attention.native_attention import NativeAttention
from common.attention.selection import AttentionNeeds, select_attention_backend
from common.errors import ConfigError
from common.kernels.cpu import library
from common.kernels.cpu.library import CpuLibrary, NativeUnavailable


def needs(device: str = "cpu", dtype: torch.dtype = torch.float32, head_dim: int = 64) -> AttentionNeeds:
    return AttentionNeeds(device=torch.device(device), dtype=dtype, num_q_heads=6, num_kv_heads=2, head_dim=head_dim)


def is_native_here() -> bool:
    try:
        CpuLibrary.load()
    except NativeUnavailable:
        return False
    return True


def test_the_choice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        backend = select_attention_backend("torch", needs())
    assert backend.name == "torch"
    assert "attention backend: torch" in caplog.text


def test_auto_takes_the_native_one_where_it_is_there() -> None:
    assert select_attention_backend("auto", needs()).name == ("native" if is_native_here() else "torch")


@pytest.mark.parametrize(
    "asked", [needs(device="cuda"), needs(dtype=torch.float16), needs(head_dim=12), needs(head_dim=512)]
)
def test_what_native_kernels_cannot_serve_goes_to_torch(asked: AttentionNeeds) -> None:
    assert select_attention_backend("auto", asked).name == "torch"
    with pytest.raises(ConfigError, match="attention_backend: native was asked for, but"):
        select_attention_backend("native", asked)


def test_a_library_that_was_not_built_is_told_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "LIBRARY_NAME", "missing.so")
    backend = select_attention_backend("auto", needs())
    assert backend.name == "torch"
    assert caplog.text.count("python -m common.kernels.cpu.build") == 1
    with pytest.raises(ConfigError, match="install a C\\+\\+ compiler"):
        select_attention_backend("native", needs())


def test_the_instruction_set_is_shown() -> None:
    if not is_native_here():
        pytest.skip("the native library is not built")
    backend = select_attention_backend("native", needs())
    assert isinstance(backend, NativeAttention)
    assert backend.description == f"native ({backend.library.isa_name})"


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"attention_backend: must be one of auto, native, torch, is 'paged'"):
        select_attention_backend("paged", needs())
