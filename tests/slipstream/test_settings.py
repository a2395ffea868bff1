from __future__ import annotations

from pathlib import Path

import pytest

from common.config import (
    DType,
    EngineConfig,
    IndexConfig,
    ProcessConfig,
    Role,
    RouterConfig,
    TransferConfig,
    WorkerConfig,
)
from common.errors import ConfigError
from slipstream.cluster_config import ClusterConfig
from slipstream.setting import nested_configs, settings_of
from slipstream.settings import (
    COMMAND_CONFIGS,
    Sources,
    command_line,
    command_settings,
    resolve,
    unknown_variables,
)


def worker(flags: dict[str, str] | None = None, file: Path | None = None, **environment: str) -> WorkerConfig:
    sources = Sources(command="decode", flags=flags or {}, environment=environment, config_file=file)
    return resolve(WorkerConfig, sources)


def toml(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def refused(*arguments: object, **keywords: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        worker(*arguments, **keywords)  # type: ignore[arg-type]
    return caught.value


def test_defaults_are_those_of_the_dataclasses() -> None:
    assert worker() == WorkerConfig()


def test_flags_win_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = toml(tmp_path, "max_num_seqs = 1\nmax_num_waiting = 2\nblock_size = 8\n")
    config = worker({"max_num_seqs": "3"}, file, SLIPSTREAM_MAX_NUM_SEQS="4", SLIPSTREAM_MAX_NUM_WAITING="5")
    assert config.engine == EngineConfig(max_num_seqs=3, max_num_waiting=5, block_size=8)


def test_a_command_table_wins_over_the_top_and_others_are_ignored(tmp_path: Path) -> None:
    file = toml(tmp_path, 'host = "a"\nlease_s = 5\n[decode]\nhost = "b"\n[router]\nhost = "c"\ngrpc_port = 1\n')
    config = worker(file=file)
    assert (config.host, config.lease_s) == ("b", 5.0)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    assert worker(SLIPSTREAM_CONFIG=str(toml(tmp_path, "port = 7001"))).port == 7001


def test_each_kind_of_value_is_read(tmp_path: Path) -> None:
    config = worker(
        {"dtype": "float32", "kv_memory_share": "0.25", "role": "both", "index_url": "redis://a:1", "port": "1"}
    )
    assert config.engine.dtype is DType.FLOAT32
    assert config.engine.kv_memory_share == 0.25
    assert config.role is Role.BOTH
    assert config.index == IndexConfig(index_url="redis://a:1")


def test_lists_are_repeated_flags_commas_or_arrays(tmp_path: Path) -> None:
    def routers(**keywords: object) -> tuple[str, ...]:
        return resolve(RouterConfig, Sources(command="router", **keywords)).worker  # type: ignore[arg-type]

    expected = ("a:1", "b:2")
    assert routers(flags={"worker": expected}) == expected
    assert routers(environment={"SLIPSTREAM_WORKER": "a:1, b:2"}) == expected
    assert routers(config_file=toml(tmp_path, 'worker = ["a:1", "b:2"]')) == expected


def test_an_empty_variable_counts_as_absent() -> None:
    assert worker(SLIPSTREAM_INDEX_URL="", SLIPSTREAM_PORT="") == WorkerConfig()


@pytest.mark.parametrize(
    ("flags", "field", "parts"),
    [
        ({"max_model_len": "long"}, "max_model_len", ["a whole number", "'long'", "flag --max-model-len"]),
        ({"kv_memory_share": "half"}, "kv_memory_share", ["a number", "'half'", "flag --kv-memory-share"]),
        ({"dtype": "int4"}, "dtype", ["auto, float32, bfloat16, float16", "'int4'", "flag --dtype"]),
        ({"role": "prefill"}, "role", ["one of decode, both", "flag --role"]),
        ({"block_size": "7"}, "block_size", ["power of two from 8 to 256", "is 7", "flag --block-size"]),
        ({"block_size": "128"}, "index_stride", ["multiple of block_size 128", "is 64", "its default"]),
        ({"port": "70000"}, "port", ["0 to 65535", "flag --port"]),
        (
            {"attention_backend": "flash"},
            "attention_backend",
            ["one of auto, native, torch", "flag --attention-backend"],
        ),
        ({"device": "tpu"}, "device", ["auto, cpu, cuda or cuda:N", "flag --device"]),
        ({"kv_memory": "1PB"}, "kv_memory", ["TB", "'1PB'", "flag --kv-memory"]),
        ({"advertise": "b"}, "advertise", ["host:port", "flag --advertise"]),
        ({"namespace": "a b"}, "namespace", ["A-Z a-z 0-9", "flag --namespace"]),
    ],
)
def test_a_bad_flag_is_named_with_what_it_may_be(flags: dict[str, str], field: str, parts: list[str]) -> None:
    error = refused(flags)
    assert error.field == field
    assert str(error).startswith(f"{field}: ")
    assert all(part in str(error) for part in parts), str(error)


def test_a_bad_variable_is_named() -> None:
    error = refused(SLIPSTREAM_MAX_NUM_SEQS="0")
    assert "must be at least 1, is 0 (from environment variable SLIPSTREAM_MAX_NUM_SEQS)" in str(error)


@pytest.mark.parametrize(
    ("text", "field", "parts"),
    [
        ("max_num_seq = 4", "max_num_seq", ["did you mean max_num_seqs?", "config.toml"]),
        ("max-num-seqs = 4", "max-num-seqs", ["did you mean max_num_seqs?"]),
        ("[decoder]\nport = 1", "decoder", ["did you mean decode?"]),
        ("[router]\nmax_num_seqs = 1", "max_num_seqs", ["[router]"]),
        ('max_num_seqs = "4"', "max_num_seqs", ["a whole number", "file"]),
        ("max_num_seqs = true", "max_num_seqs", ["a whole number", "boolean"]),
        ("max_num_seqs = 1.5", "max_num_seqs", ["a whole number"]),
        ("model = 3", "model", ["a string"]),
        ('dtype = "int4"', "dtype", ["one of auto", "file"]),
        ("[decode]\nblock_size = 7", "block_size", ["power of two", "[decode] in file"]),
        ('worker = "a:1"', "worker", ["a list of strings"]),
        ("port = =", "config", ["not valid TOML", "line 1"]),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, field: str, parts: list[str]) -> None:
    command = "router" if field == "worker" else "decode"
    sources = Sources(command=command, config_file=toml(tmp_path, text))
    with pytest.raises(ConfigError) as caught:
        resolve(COMMAND_CONFIGS[command], sources)
    assert caught.value.field == field
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    error = refused(file=tmp_path / "absent.toml")
    assert "absent.toml can't be read: No such file" in str(error)


def test_every_field_of_a_config_is_a_setting_with_help() -> None:
    for config_type in (
        EngineConfig,
        IndexConfig,
        ProcessConfig,
        TransferConfig,
        RouterConfig,
        WorkerConfig,
        ClusterConfig,
    ):
        names = {one.name for one in settings_of(config_type)}
        fields = set(config_type.__dataclass_fields__) - nested_configs(config_type).keys()
        fields -= {"prefill_engine", "decode_engine"}
        assert fields <= names
    assert all(one.help for command in COMMAND_CONFIGS for one in command_settings(command))


@pytest.mark.parametrize("command", COMMAND_CONFIGS)
def test_no_two_settings_of_a_command_share_a_name(command: str) -> None:
    names = [one.name for one in command_settings(command)]
    assert len(names) == len(set(names))


def test_a_config_survives_the_command_line() -> None:
    config = WorkerConfig(
        engine=EngineConfig(model="/m", dtype=DType.FLOAT32, kv_memory_share=0.1, num_threads=1),
        index=IndexConfig(index_url="redis://a:1"),
        role=Role.BOTH,
        worker_id="both-0",
    )
    command, *flags = command_line("decode", config)
    assert command == "decode"
    pairs = dict(zip(flags[::2], flags[1::2], strict=True))
    by_name = {one.name: pairs[one.flag] for one in command_settings("decode") if one.flag in pairs}
    assert worker(by_name) == config


def test_a_variable_that_looks_mistyped_draws_a_warning() -> None:
    lines = unknown_variables({"SLIPSTREAM_MAX_MODEL_LENGTH": "1", "SLIPSTREAM_SERVICE_HOST_7": "x", "HOME": "/"})
    assert lines == [
        "environment variable SLIPSTREAM_MAX_MODEL_LENGTH is no setting; did you mean SLIPSTREAM_MAX_MODEL_LEN?"
    ]
