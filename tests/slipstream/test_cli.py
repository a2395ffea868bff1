from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from slipstream import cli
from tests.support.scripted_router import Script, ScriptedRouter

COMMANDS = ("up", "router", "prefill", "decode", "generate", "status", "simulate", "version")


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SLIPSTREAM_")]:
        monkeypatch.delenv(name)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {command} " in listed for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: slipstream {command}")
    if command != "version":
        assert f"  slipstream {command}" in text.partition("Examples:")[2]
    if command not in ("simulate", "version"):
        assert "SLIPSTREAM_MAX_MODEL_LEN" in text


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from slipstream import cli; cli.run(['--help']);"
        "print({'torch', 'grpc', 'redis', 'rich', 'transformers'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "set()\n"


def test_ctrl_c_while_the_command_loads_is_an_exit_code() -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from slipstream.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["version"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("slipstream ")
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["decode", "--block-size", "7"], "block_size: must be a power of two from 8 to 256, is 7 (from flag"),
        (["decode", "--role", "prefill"], "role: must be one of decode, both, is 'prefill' (from flag --role)"),
        (["router", "--http-port", "x"], "http_port: must be a whole number, is 'x' (from flag --http-port)"),
        (["up", "--prefill", "0"], "prefill: must be from 1 to 64, is 0 (from flag --prefill)"),
        (["up", "--config", "/absent.toml"], "config: /absent.toml can't be read"),
        (["prefill", "--role", "both"], "No such option"),
        (["decode", "--max-model-length", "4"], "--max-model-len"),
        (["generate", "--max-tokens", "many", "x"], "--max-tokens"),
        (["status", "--target", "nowhere"], "target: must be host:port"),
        (["generate", "--model", "x", "Hi"], "--model is a setting of the fleet that --local starts"),
        (["generate", "--kv-memory", "1GB", "Hi"], "--kv-memory is a setting of the fleet that --local starts"),
        (["generate", "--local", "--target", "a:1", "Hi"], "--target is for a running router"),
        (["generate", ""], "PROMPT is empty"),
        (["up", "--policy", "x"], "policy: must be one of prefix_aware, round_robin, least_loaded, "),
        (["up", "--block-size", "128"], "index_stride: must be a multiple of block_size 128, is 64"),
        (["router"], "index_url: must be given"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_use_exits_with_2_and_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_a_setting_of_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPSTREAM_MAX_NUM_SEQS", "0")
    assert cli.run(["decode"]) == 2
    assert "(from environment variable SLIPSTREAM_MAX_NUM_SEQS)" in capsys.readouterr().err


def test_generate_streams_the_answer(router: ScriptedRouter, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["generate", "--target", router.address, "--temperature", "0", "Why?"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "The sky is blue.\n"
    assert "5 prompt tokens (2 cached), 3 generated" in captured.err
    (request,) = router.script.requests
    assert request.chat.messages[0].content == "Why?"
    assert request.sampling.HasField("temperature")
    assert request.sampling.max_tokens == 256


def test_generate_raw_and_json(router: ScriptedRouter, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["generate", "--target", router.address, "--raw", "--json", "--stop", "\n", "Why?"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "The sky is blue."
    assert answer["finish_reason"] == "stop"
    assert answer["usage"]["cached_tokens"] == 2
    assert router.script.requests[0].text == "Why?"
    assert list(router.script.requests[0].sampling.stop) == ["\n"]


def test_generate_without_a_template_sends_the_prompt_as_it_stands_and_says_so(
    router: ScriptedRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    router.script = Script(has_chat_template=False)
    assert cli.run(["generate", "--target", router.address, "Why?"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "The sky is blue.\n"
    assert "no chat template" in captured.err
    assert [request.WhichOneof("prompt") for request in router.script.requests] == ["chat", "text"]
    assert cli.run(["generate", "--target", router.address, "--chat", "Why?"]) == 2


def test_generate_asks_for_the_model_that_it_is_told(router: ScriptedRouter) -> None:
    assert cli.run(["generate", "--target", router.address, "--served-model-name", "tiny", "x"]) == 0
    assert router.script.requests[0].model == "tiny"


def test_generate_without_a_router_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["generate", "--target", "127.0.0.1:1", "x"]) == 1
    shown = capsys.readouterr().err
    assert shown == ("error: 127.0.0.1:1: connection refused\nIs a router running there? `slipstream up` starts one.\n")


def test_what_a_router_says_of_itself_stands_as_it_is(
    router: ScriptedRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    router.script = Script(fail_after=0, code=grpc.StatusCode.UNAVAILABLE, details="no prefill worker is ready")
    assert cli.run(["generate", "--target", router.address, "x"]) == 1
    assert capsys.readouterr().err == f"error: {router.address}: no prefill worker is ready\n"


def test_cluster_settings_of_the_environment_are_for_other_commands(
    router: ScriptedRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_MODEL", "/models/other")
    assert cli.run(["generate", "--target", router.address, "x"]) == 0


def generate_from_standard_input(router: ScriptedRouter, given: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "slipstream", "generate", "--target", router.address],
        input=given,
        capture_output=True,
        cwd=Path(cli.__file__).parent.parent,
    )


def test_generate_reads_standard_input(router: ScriptedRouter) -> None:
    assert generate_from_standard_input(router, "Why, ö?".encode()).stdout == b"The sky is blue.\n"
    assert router.script.requests[0].chat.messages[0].content == "Why, ö?"


@pytest.mark.parametrize(("given", "message"), [(b"\n", b"standard input is empty"), (b"\xff\xfe", b"must be UTF-8")])
def test_generate_refuses_an_input_without_a_prompt(router: ScriptedRouter, given: bytes, message: bytes) -> None:
    done = generate_from_standard_input(router, given)
    assert done.returncode == 2
    assert message in done.stderr
    assert b"Traceback" not in done.stderr
    assert not router.script.requests


def test_status_prints_the_fleet(
    router: ScriptedRouter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.run(["status", "--target", router.address]) == 0
    table = capsys.readouterr().out
    for cell in ("decode-0", "ready", "tiny", "40/100", "30", "3/64", "7", "25%", "torch", "router-0"):
        assert cell in table


def test_status_as_json(router: ScriptedRouter, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "--json", "--target", router.address]) == 0
    fleet = json.loads(capsys.readouterr().out)
    assert fleet["workers"][0]["load"]["num_blocks"] == 100
    assert fleet["router"]["ready"] is True
