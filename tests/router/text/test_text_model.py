from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer

from common.errors import ConfigError, InvalidRequestError
from router.text.text_model import TextModel, TokenText
from tests.support.chat_templates import LLAMA3, SMOLLM2

CHATML_CONFIG = {"bos_token": "<|im_start|>", "eos_token": {"__type": "AddedToken", "content": "<|im_end|>"}}
MESSAGES = [{"role": "user", "content": "hello"}]
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


def test_ids_are_those_of_transformers(make_folder):
    folder = make_folder("byte_level", {**GENERIC, **CHATML_CONFIG}, {"chat_template.jinja": SMOLLM2})
    model, reference = TextModel.load(folder), AutoTokenizer.from_pretrained(folder)
    for text in ["", "hello <|im_end|> world", "日本 🙂\x00\r\n", " " * 50]:
        assert model.encode(text, max_model_len=999) == reference(text)["input_ids"]
    rendered = model.render_chat(MESSAGES)
    expected = reference.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    assert model.encode(rendered, max_model_len=999, add_special_tokens=False) == expected


@pytest.mark.parametrize("with_processor", [True, False])
@pytest.mark.parametrize("wished", [{}, {"add_bos_token": True}, {"add_bos_token": False}])
def test_bos_is_added_where_transformers_adds_it(wished, with_processor, make_folder):
    folder = make_folder("byte_level", {**GENERIC, "bos_token": "<s>", "eos_token": "</s>", **wished})
    if with_processor:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 3)])
        tokenizer.save(str(folder / "tokenizer.json"))
    expected = AutoTokenizer.from_pretrained(folder)("hi")["input_ids"]
    assert TextModel.load(folder).encode("hi", max_model_len=99) == expected
    assert len(expected) == 2 + with_processor


def test_templates_come_from_files_before_the_configuration(make_folder):
    config = {"chat_template": "configured {{ eos_token }}", "eos_token": "</s>"}
    assert TextModel.load(make_folder("byte_level", config)).render_chat(MESSAGES) == "configured </s>"
    files = {"chat_template.jinja": "file", "additional_chat_templates/tool_use.jinja": "with {{ tools }}"}
    model = TextModel.load(make_folder("byte_level", config, files))
    assert (model.render_chat(MESSAGES), model.render_chat(MESSAGES, tools=[])) == ("file", "with []")


def test_special_tokens_come_from_where_transformers_takes_them(make_folder):
    template = "{{ bos_token }}{{ eos_token }}{{ image_token }}{{ pad_token is defined }}"
    named = [{"name": "default", "template": template}]
    config = {**GENERIC, "chat_template": named, "bos_token": "<s>", "eos_token": "</s>", "image_token": "<|im_start|>"}
    old = {"special_tokens_map.json": json.dumps({"bos_token": {"content": "<|endoftext|>", "lstrip": False}})}
    for kind_of_config in (config, {**config, "added_tokens_decoder": {}}):
        folder = make_folder("byte_level", kind_of_config, old)
        expected = AutoTokenizer.from_pretrained(folder).apply_chat_template(MESSAGES, tokenize=False)
        assert TextModel.load(folder).render_chat(MESSAGES) == expected


@pytest.mark.parametrize("text", ["x" * 10_000_000, "é" * 400], ids=["characters", "bytes"])
def test_text_that_can_not_fit_is_refused_untokenised(text, make_folder):
    model = TextModel.load(make_folder("byte_level"))
    max_model_len = 500 // model.longest_token_bytes
    with pytest.raises(InvalidRequestError, match="too long") as refused:
        model.encode(text, max_model_len=max_model_len)
    assert refused.value.field == "prompt"
    model.encode("x" * max_model_len * model.longest_token_bytes, max_model_len=max_model_len)


def test_an_unpaired_surrogate_is_refused(make_folder):
    with pytest.raises(InvalidRequestError, match="surrogate"):
        TextModel.load(make_folder("byte_level")).encode("ab\ud800", max_model_len=99)


def test_truncation_and_padding_of_training_are_off(make_folder):
    folder = make_folder("byte_level")
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    assert len(TextModel.load(folder).encode("a b c d", max_model_len=99)) > 2


def test_token_texts_carry_the_bytes_of_parts_of_characters(make_folder):
    model = TextModel.load(make_folder("byte_level"))
    token_ids = model.encode("🙂 the<|im_end|>", max_model_len=99)
    texts = [model.token_text(token_id) for token_id in token_ids]
    assert b"".join(text.data for text in texts) == "🙂 the<|im_end|>".encode()
    assert texts[-1] == TokenText("<|im_end|>", b"<|im_end|>")
    assert model.token_text(10**6) == TokenText("", b"")


def test_lengths_and_eos_come_from_the_configuration(make_folder):
    files = {
        "config.json": json.dumps({"max_position_embeddings": 8192, "eos_token_id": 1}),
        "generation_config.json": json.dumps({"eos_token_id": [1, 2]}),
    }
    model = TextModel.load(make_folder("byte_level", CHATML_CONFIG, files))
    assert (model.max_model_len, model.eos_token_ids) == (8192, {1, 2})
    assert TextModel.load(make_folder("metaspace", {"eos_token": "</s>"})).eos_token_ids == {2}


def test_a_folder_without_tokenizer_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        TextModel.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="can't be read"):
        TextModel.load(tmp_path)


def test_neither_torch_nor_transformers_is_imported(make_folder):
    folder = make_folder("byte_level", {"bos_token": "<s>"}, {"chat_template.jinja": LLAMA3})
    program = (
        "import sys, pathlib, router.http, router.text, router.metrics\n"
        "model = router.text.TextModel.load(pathlib.Path(sys.argv[1]))\n"
        "model.encode(model.render_chat([{'role': 'user', 'content': 'hi'}]), max_model_len=99)\n"
        "print([name for name in ('torch', 'transformers', 'numpy', 'pydantic') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
