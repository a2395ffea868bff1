from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from slipstream import cli

SMALL = "synthetic:multi_turn?requests=120&rate=20&seed=1"
NAMED = {
    "hit_rate",
    "hit_rate_ceiling",
    "busiest_over_mean",
    "goodput_share",
    "prefill_utilization",
    "decode_utilization",
    "transferred_bytes",
    "num_refusals",
    *(f"{name}_{kind}_s" for name in ("ttft", "tpot", "e2e") for kind in ("mean", "p50", "p90", "p95", "p99")),
}


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", SMALL, "--prefill", "2", "--cache", "infinite", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= NAMED
    assert found["num_answered"] == 120
    assert 0 < found["hit_rate"] <= found["hit_rate_ceiling"] < 1


def test_several_policies_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--prefill", "2", "--policy", "random", "--policy", "prefix_aware"]
    assert cli.run(["simulate", SMALL, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["policies"]
    assert list(found) == ["random", "prefix_aware"]
    assert cli.run(["simulate", SMALL, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "120 requests" in lines[0] and "Roofline estimate, not a measurement" in lines[1]
    assert [line.split()[0] for line in lines if line.strip().startswith(("random", "prefix_aware"))] == [
        "random",
        "prefix_aware",
    ]


def test_a_trace_from_a_file_under_load_routers_late_writes_and_deaths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"{number / 10},600,5,{number % 7} {number},512" for number in range(60)]
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens,block_ids,block_size", *rows]))
    options = "--utilization 0.8 --routers 2 --index-delay-fraction 0.5 --kill-every 0.2 --down-for 0.1 --requests 50"
    assert cli.run(["simulate", str(path), *options.split(), "--prefill", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_answered"] == 50
    assert found["offered_utilization"] == pytest.approx(0.8)


def test_workers_that_die_faster_than_they_compute_end_the_requests(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--prefill 2 --kill-every 0.01 --down-for 0.015 --requests 4 --json"
    assert cli.run(["simulate", "synthetic:groups?prefix_tokens=20000&seed=1", *options.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["num_answered"], found["num_rejected"]) == (0, 4)
    assert found["num_lost_attempts"] == 400


def test_a_worker_that_is_dead_does_not_die_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", SMALL, "--kill-every", "0.01", "--down-for", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_answered"] + found["num_rejected"] == 120
    assert found["num_answered"] > 0


def test_what_decode_holds_for_kv_on_its_way_is_less_when_it_is_mapped_late(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shares = []
    for options in ([], ["--map-at-once"]):
        assert cli.run(["simulate", "synthetic:groups?turn_tokens=20000&rate=5", "--json", *options]) == 0
        shares.append(json.loads(capsys.readouterr().out)["decode_waiting_share"])
    assert 0 < shares[0] < 0.7 * shares[1] < 1


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--plan", "--ttft-slo-ms", "500", "--tpot-slo-ms", "30", "--max-workers", "8"]
    assert cli.run(["simulate", SMALL, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost"] == found["num_prefill"] + found["num_decode"]
    assert found["attained"] >= 0.9
    assert any(trial["cost"] == found["cost"] and trial["meets"] for trial in found["trials"])
    assert cli.run(["simulate", SMALL, *options]) == 0
    assert "<- cheapest" in capsys.readouterr().out


def test_a_chart(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    assert cli.run(["simulate", SMALL, "--prefill", "2", "--json", "--png", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_chart_without_matplotlib_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.run(["simulate", SMALL, "--prefill", "2", "--png", str(tmp_path / "x.png")]) == 2
    assert "png: needs matplotlib: pip install 'slipstream[simulator]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/absent"], "trace: /absent can't be read"),
        (["synthetic:dreams"], "trace: no workload 'dreams'"),
        ([SMALL, "--policy", "best"], "policy: must be one of prefix_aware"),
        ([SMALL, "--profile", "tpu"], "profile: must be a file or one of"),
        ([SMALL, "--cache", "none"], "cache: must be 'infinite' or a number of blocks, is 'none'"),
        ([SMALL, "--cache", "0"], "cache: must be 'infinite' or a number of blocks, is '0'"),
        ([SMALL, "--prefill", "0"], "--prefill"),
        ([SMALL, "--utilization", "0.5", "--time-scale", "2"], "give one of them"),
        ([SMALL, "--plan"], "--plan needs --ttft-slo-ms, --tpot-slo-ms, or both"),
        ([SMALL, "--plan", "--ttft-slo-ms", "9", "--policy", "all"], "--plan takes one --policy"),
        ([SMALL, "--plan", "--ttft-slo-ms", "9", "--utilization", "0.5"], "scale arrivals with --time-scale"),
        ([SMALL, "--plan", "--ttft-slo-ms", "9", "--png", "x.png"], "--plan draws no chart"),
        (
            [SMALL, "--plan", "--ttft-slo-ms", "0.001", "--max-workers", "2"],
            "2 workers of each role don't meet the SLO",
        ),
        ([SMALL, "--time-scale", "nan"], "nan is not a finite number"),
        ([SMALL, "--utilization", "inf"], "inf is not a finite number"),
        ([SMALL, "--time-scale", "1e300"], "more than a year: scale its times"),
        ([SMALL, "--prefill", "100000000"], "--prefill"),
        (["synthetic:agents?turns=1e308"], "turns: must be at least 1 and at most 100,000"),
        (["synthetic:agents?skew=100000"], "skew: must be at least 0 and at most 30"),
        (["synthetic:groups?prefixes=1000000"], "prefixes: all together have 32,000,000 blocks"),
        ([SMALL, "--png", "/absent/x.png"], "png: /absent/x.png can't be written"),
    ],
)
def test_wrong_use_exits_with_2_and_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["simulate", *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
