"""How soon a thread gets its core from another one: the slices of Linux' scheduler (EEVDF, sched_setattr(2)).

A thread that wakes takes the core at once from one with a longer slice; from others, when their slice of a few
milliseconds is over. Shares of the core stay what they are. Linux before 6.12 takes no notice.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

# The least that Linux grants.
SHORT_SLICE_S = 0.0001
_SYSCALLS = {"x86_64": 314, "aarch64": 274}  # sched_setattr
_SCHED_OTHER = 0


class _SchedAttr(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def answer_at_once() -> bool:
    """The calling thread, and those that it starts from now on, hardly wait for threads that compute.

    For threads that have little to do and are waited for. False where the system knows no slices.
    """
    return _set_slice(SHORT_SLICE_S)


def compute_at_length() -> bool:
    """The calling thread, and those that it starts from now on, have the system's usual slice again."""
    return _set_slice(0.0)


def _set_slice(slice_s: float) -> bool:
    number = _SYSCALLS.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        return False
    if os.sched_getscheduler(0) != _SCHED_OTHER:
        return False  # whoever chose another policy knows why
    attributes = _SchedAttr(
        size=ctypes.sizeof(_SchedAttr),
        policy=_SCHED_OTHER,
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        runtime_ns=round(slice_s * 1e9),
    )
    return bool(ctypes.CDLL(None).syscall(number, 0, ctypes.byref(attributes), 0) == 0)
