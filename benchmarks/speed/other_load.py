"""What other processes of the machine use while something is measured: a share of a core costs an engine far more."""

from __future__ import annotations

import time

import psutil

# Cores. The kernel's own threads and an idle machine's services stay below.
MAX_OTHER_CORES = 0.15
LOOK_S = 0.25
MAX_SETTLING_S = 5.0


def settle() -> None:
    """Waits until the machine idles: an engine's threads spin on for a second after its last request, at the cost of
    the one that is measured next."""
    deadline_s = time.monotonic() + MAX_SETTLING_S
    while time.monotonic() < deadline_s:
        began_s, busy_s = time.monotonic(), _busy_s()
        time.sleep(LOOK_S)
        if (_busy_s() - busy_s) / (time.monotonic() - began_s) <= MAX_OTHER_CORES:
            return


class OtherLoad:
    """CPU time of the machine less that of this process and of all that it started. Made when a run begins."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._others_s = _others_s()

    def cores(self) -> float:
        """That others have used on average since the run began; what the hypervisor took counts too."""
        return max(0.0, (_others_s() - self._others_s) / max(1e-3, time.monotonic() - self._began_s))


def _others_s() -> float:
    here = psutil.Process()
    return float(_busy_s() - sum(_used_s(one) for one in (here, *here.children(recursive=True))))


def _busy_s() -> float:
    """CPU seconds of the whole machine."""
    whole = psutil.cpu_times()
    return float(whole.user + whole.nice + whole.system + whole.irq + whole.softirq + getattr(whole, "steal", 0.0))


def _used_s(process: psutil.Process) -> float:
    """Its ended children included."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0
