"""What --model may be, and how the demo model comes out of its GGUF file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.checkpoint import resolve_model, served_name
from common.errors import ConfigError, UnsupportedModelError


def test_a_folder_is_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path)) == tmp_path.resolve()
    assert served_name(str(tmp_path), tmp_path) == tmp_path.name


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model: the folder .* has no config\.json"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("model", ["", "nowhere", "/no/such/folder", "a/b/c"])
def test_what_names_nothing_is_refused_with_what_it_may_be(model: str) -> None:
    with pytest.raises(ConfigError, match=r"model: must be 'demo', a model folder, a \.gguf file or a hub id"):
        resolve_model(model)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"x")
    with pytest.raises(ConfigError, match="must be"):
        resolve_model(str(path))


def test_a_broken_gguf_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(UnsupportedModelError, match=r"broken\.gguf could not be converted: "):
        resolve_model(str(path))


def test_a_hub_id_is_looked_up_only_in_the_cache_when_offline(tmp_path: Path) -> None:
    """In a process of its own, since the hub's client reads the environment when it is imported."""
    script = "from common.checkpoint import resolve_model; resolve_model('some-owner/some-model')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HOME": str(tmp_path)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ConfigError: model: 'some-owner/some-model' is no local path, and the hub did not give it" in done.stderr


def test_the_demo_model_is_converted(demo_model: Path) -> None:
    names = {path.name for path in demo_model.iterdir()}
    assert names == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((demo_model / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    generation = json.loads((demo_model / "generation_config.json").read_text())
    tokenizer = json.loads((demo_model / "tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    assert generation["eos_token_id"] == special["<|im_end|>"] == 2
    assert "<|im_start|>assistant" in (demo_model / "chat_template.jinja").read_text()
    assert served_name("demo", demo_model) == "SmolLM2-135M-Instruct"


def test_finding_a_prepared_model_imports_no_torch(demo_model: Path) -> None:
    script = (
        "import sys; from common.checkpoint import resolve_model; print(resolve_model('demo')); "
        "assert not {'torch', 'transformers', 'gguf'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(demo_model)
