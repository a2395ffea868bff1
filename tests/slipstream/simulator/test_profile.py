from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.cost import PrefillWork
from common.errors import ConfigError
from slipstream.simulator.profile import load_profile, profile_names

LINEAR = {
    "name": "mine",
    "source": "measured",
    "kind": "linear",
    "linear": {
        "step_s": 0.01,
        "prefill_token_s": 0.001,
        "prefill_pair_s": 0,
        "decode_request_s": 0.001,
        "decode_kv_token_s": 0,
    },
    "kv_capacity_tokens": 1000,
    "kv_bytes_per_token": 10,
    "chunk_tokens": 64,
    "max_num_seqs": 4,
    "transfer_bytes_per_s": 1e9,
}


def test_shipped_profiles_say_what_they_are() -> None:
    assert profile_names() == ["h100-llama-3.1-70b", "h100-llama-3.1-8b", "h200-llama-3.1-70b", "h200-llama-3.1-8b"]
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        assert profile.source.startswith("Roofline estimate, not a measurement")


def test_a_linear_profile_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(LINEAR))
    profile = load_profile(str(path))
    assert profile.model.prefill_step_s(PrefillWork.of(5, 0)) == pytest.approx(0.015)
    assert profile.model.decode_lines(3)[0].at(100) == pytest.approx(0.013)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "magic"}, "kind: must be linear or roofline, is 'magic'"),
        ({"chunk_tokens": 0}, "chunk_tokens: must be a number above 0, is 0"),
        ({"chunk_tokens": 64.5}, "chunk_tokens: must be a whole number, is 64.5"),
        ({"transfer_bytes_per_s": float("nan")}, "transfer_bytes_per_s: must be a number above 0, is nan"),
        ({"kv_capacity_tokens": float("inf")}, "kv_capacity_tokens: must be a number above 0, is inf"),
        ({"linear": None}, "linear: must be an object"),
        ({"linear": {**LINEAR["linear"], "step_s": -1}}, "linear: step_s: must be a number of seconds"),  # type: ignore[dict-item]
        ({"linear": {"step_s": 1}}, "linear: prefill_token_s: is missing"),
        ({"linear": {"speed": 1}}, "linear: speed: is no field"),
    ],
)
def test_an_error_names_the_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(LINEAR | changes))
    with pytest.raises(ConfigError, match=r"^profile: ") as caught:
        load_profile(str(path))
    assert message in str(caught.value)


def test_an_unknown_name_shows_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"must be a file or one of h100-llama-3\.1-70b, .* is 'tpu'"):
        load_profile("tpu")
