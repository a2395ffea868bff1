from __future__ import annotations

import pytest
from tokenizers import decoders

from common.errors import UnsupportedModelError
from router.text.token_decoder import DecoderPlan
from tests.support.tokenizers import byte_fallback_tokenizer, byte_level_tokenizer


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.WordPiece(),
        decoders.CTC(),
        decoders.Sequence([decoders.Fuse(), decoders.ByteFallback()]),
        decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "c")]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    ],
)
def test_a_decoder_that_can_not_stream_is_refused_by_name(decoder):
    tokenizer = byte_fallback_tokenizer()
    tokenizer.decoder = decoder
    with pytest.raises(UnsupportedModelError, match=r"WordPiece|CTC|ByteFallback|Replace|Strip"):
        DecoderPlan.parse(tokenizer.to_str())


def test_token_strips_before_fuse_match_the_library():
    tokenizer = byte_fallback_tokenizer()
    tokenizer.decoder = decoders.Sequence([decoders.Strip("l", 1, 1), decoders.Fuse(), decoders.Strip("▁", 2, 0)])
    ids = tokenizer.encode("lo hello a the lo").ids
    decoder = DecoderPlan.parse(tokenizer.to_str()).start()
    text = "".join(decoder.feed([tokenizer.id_to_token(token_id)]) for token_id in ids) + decoder.flush()
    assert text == tokenizer.decode(ids)


def test_token_bytes_are_what_a_token_stands_for():
    plan = DecoderPlan.parse(byte_level_tokenizer().to_str())
    assert plan.token_bytes("Ġthe") == b" the" and plan.token_bytes("Ã") == b"\xc3"
    assert plan.token_bytes("</think> é") == "</think> é".encode()
    plan = DecoderPlan.parse(byte_fallback_tokenizer().to_str())
    assert plan.token_bytes("<0xE2>") == b"\xe2" and plan.token_bytes("▁the") == b" the"
