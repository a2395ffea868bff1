"""How much memory a process may still take: of a CUDA device, or of the machine within its control groups' limits."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def free_memory(device: torch.device) -> int:
    """Bytes."""
    if device.type == "cuda":
        free_bytes: int = torch.cuda.mem_get_info(device)[0]
        return free_bytes
    limits = cgroup_free_bytes(CGROUP_ROOT, OWN_CGROUP)
    return min([psutil.virtual_memory().available, *limits])


def cgroup_free_bytes(root: Path, own: Path) -> list[int]:
    """What each control group (version 2) around this process still allows, where it has a limit.

    Files in the page cache count as used, but give way: a model that was just downloaded must not look like memory
    that is gone.
    """
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::/"))
    except (OSError, StopIteration):
        return []
    group = root / line.removeprefix("0::/")
    free = []
    for folder in (group, *group.parents):
        if folder.is_relative_to(root):
            try:
                limit = (folder / "memory.max").read_text().strip()
                used = int((folder / "memory.current").read_text()) - _reclaimable(folder / "memory.stat")
            except OSError:  # the root has no limit, and another mount's groups can't be seen
                continue
            if limit != "max":
                free.append(max(0, int(limit) - used))
    return free


def _reclaimable(stat: Path) -> int:
    fields = dict(line.split() for line in stat.read_text().splitlines())
    return int(fields.get("inactive_file", 0))
