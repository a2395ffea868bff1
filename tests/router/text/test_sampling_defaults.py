"""What generation_config.json says of sampling, as vLLM's server reads it."""

from __future__ import annotations

import json

import pytest

from common.errors import ConfigError
from common.request import SamplingParams
from router.text import TextModel


def defaults_of(make_folder, **generation_config) -> SamplingParams:
    files = {"generation_config.json": json.dumps(generation_config)}
    return TextModel.load(make_folder("byte_level", files=files)).sampling_defaults


def test_the_model_s_own_are_read(make_folder):
    own = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.05}
    others = {"do_sample": False, "max_new_tokens": 9, "eos_token_id": [2], "num_beams": 4}
    assert defaults_of(make_folder, **own, **others) == SamplingParams(**own)


def test_a_model_that_says_nothing_has_ours(make_folder):
    assert TextModel.load(make_folder("byte_level")).sampling_defaults == SamplingParams()
    assert defaults_of(make_folder, temperature=None, top_k=-1) == SamplingParams()


@pytest.mark.parametrize("wrong", [{"temperature": "hot"}, {"top_k": 1.5}, {"top_p": 2}, {"min_p": True}])
def test_what_can_not_be_is_refused_at_load(make_folder, wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"generation_config.json: {name}"):
        defaults_of(make_folder, **wrong)
