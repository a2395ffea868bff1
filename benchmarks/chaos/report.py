"""What a run shows, for people: a line per round, the table of coverage, the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.chaos.cell import Stage, Strike
from benchmarks.chaos.coverage import Coverage
from benchmarks.chaos.judge import BAD, Verdict
from benchmarks.chaos.round import RoundResult
from benchmarks.chaos.schedule import Turn

MAX_FAULTS_SHOWN = 6


def round_lines(turn: Turn, result: RoundResult) -> list[str]:
    bad = [one for one in result.judgements.values() if one.is_bad]
    problems = [
        *(f"{one.request_id} {one.verdict}: {one.detail}" for one in bad),
        *result.faults,
        *(f"left over: {line}" for line in result.left),
    ]
    word = "FAIL" if problems else "ok  "
    stages = " ".join(f"{stage}:{len(ids)}" for stage, ids in result.struck.items())
    lines = [
        f"{word} {turn.number:2d} {result.victim!s:<28} {turn.setting.name.lower():<9} "
        f"{len(result.judgements)} requests, "
        f"silence {result.longest_silence_s:.2f} s, given back in {result.given_back_s:.2f} s, "
        f"{result.elapsed_s:.1f} s, {result.others_share:.0%} of the machine others'; {stages}"
    ]
    lines += [f"       {line}" for line in problems[:MAX_FAULTS_SHOWN]]
    if len(problems) > MAX_FAULTS_SHOWN:
        lines.append(f"       and {len(problems) - MAX_FAULTS_SHOWN} more")
    return lines


class Tally:
    """Sums over rounds."""

    def __init__(self) -> None:
        self.verdicts = dict.fromkeys(Verdict, 0)
        self.num_left = 0
        self.faults: list[str] = []
        self.silence_s: dict[Strike, float] = {}

    def add(self, result: RoundResult) -> None:
        for one in result.judgements.values():
            self.verdicts[one.verdict] += 1
        self.num_left += len(result.left)
        self.faults += result.faults
        strike = result.victim.strike
        self.silence_s[strike] = max(self.silence_s.get(strike, 0.0), result.longest_silence_s)

    @property
    def num_requests(self) -> int:
        return sum(self.verdicts.values())

    @property
    def is_good(self) -> bool:
        return not (self.num_left or self.faults or any(self.verdicts[verdict] for verdict in BAD))


def verdict_line(tally: Tally, gaps: Sequence[tuple[Strike, Stage]], least_requests: int, elapsed_s: float) -> str:
    """The last line: UNHARMED, or HARMED."""
    is_good = tally.is_good and not gaps and tally.num_requests >= least_requests
    counts = ", ".join(f"{count} {verdict}" for verdict, count in tally.verdicts.items())
    too_few = "" if tally.num_requests >= least_requests else f" (at least {least_requests} are wanted)"
    verdict = "UNHARMED" if is_good else "HARMED"
    return (
        f"{verdict}: {tally.num_requests} requests{too_few} in {elapsed_s / 60:.1f} minutes: "
        f"{counts}; {tally.num_left} leaks, {len(tally.faults)} other faults, {len(gaps)} gaps"
    )


def tables(coverage: Coverage, tally: Tally) -> str:
    silence = ", ".join(f"{strike} {seconds:.2f}" for strike, seconds in tally.silence_s.items())
    return f"requests struck, by fault and stage:\n{coverage.table()}\nlongest silence, seconds: {silence}"
