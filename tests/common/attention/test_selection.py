import logging

import pytest
import torch

from common.attention.selection import select_attention_backend
from common.errors import ConfigError


def test_the_choice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        backend = select_attention_backend("auto", torch.device("cpu"))
    assert backend.name == "torch"
    assert "attention backend: torch" in caplog.text


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"attention_backend: must be auto or one of torch, is 'paged'"):
        select_attention_backend("paged", torch.device("cpu"))
