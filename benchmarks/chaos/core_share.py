"""How much of the machine other programs took from the fleet: on a shared machine everything takes longer by that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


class CoreShare:
    """Counts from its making on. `pids` are the fleet's at the time; this process is one of it, too."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._started = {pid: _used_s(pid) for pid in (psutil.Process().pid, *pids)}
        self._busy_s, self._all_s = _machine_s()

    def of_others(self, pids: Iterable[int]) -> float:
        """Share of all cores' time, 0 to 1; `pids` are the fleet's by now.

        What processes of it used that have ended meanwhile counts as that of others.
        """
        busy_s, all_s = _machine_s()
        own_s = sum(max(0.0, _used_s(pid) - self._started.get(pid, 0.0)) for pid in {*self._started, *pids})
        elapsed_s = all_s - self._all_s
        return min(1.0, max(0.0, busy_s - self._busy_s - own_s) / elapsed_s) if elapsed_s > 0 else 0.0


def _used_s(pid: int) -> float:
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _machine_s() -> tuple[float, float]:
    times = psutil.cpu_times()
    all_s = float(sum(times)) - float(getattr(times, "guest", 0.0)) - float(getattr(times, "guest_nice", 0.0))
    return all_s - float(times.idle) - float(getattr(times, "iowait", 0.0)), all_s
