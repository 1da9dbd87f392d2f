"""How many threads this process may really use: the cgroup's CPU quota and the affinity mask.

`os.cpu_count()` tells the host's processors: 32 threads in a container of 2 CPUs only fight.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def available_threads(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> int:
    """Threads worth running: the smaller of affinity and quota, rounded up, at least 1."""
    threads = float(_affinity())
    quota = cpu_quota(cgroups, own_cgroup)
    if quota is not None:
        threads = min(threads, quota)
    return max(1, math.ceil(threads))


def cpu_quota(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> float | None:
    """The tightest CPU quota that binds this process, in CPUs; None without one.

    Reads cgroup version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`), in this process's own
    group and every group above it, since each of them binds.
    """
    quotas: list[float] = []
    for hierarchy, group in _own_groups(own_cgroup):
        root = cgroups / hierarchy if hierarchy else cgroups
        # Inside a container the group's path is often that of the host and does not exist here;
        # the root of the mount is then the container's own group.
        for folder in (root / group, *(root / group).parents):
            quota = _quota_v1(folder) if hierarchy else _quota_v2(folder)
            if quota is not None:
                quotas.append(quota)
            if folder == root:
                break
    return min(quotas, default=None)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _own_groups(own_cgroup: Path) -> list[tuple[str, str]]:
    """(hierarchy folder, path below it) of the groups that limit CPU; "" is version 2."""
    found = []
    for line in (_read(own_cgroup) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found.append(("", path.lstrip("/")))
        elif "cpu" in controllers.split(","):
            found.extend((folder, path.lstrip("/")) for folder in (controllers, "cpu"))
    return found or [("", "")]


def _quota_v2(folder: Path) -> float | None:
    text = _read(folder / "cpu.max")
    if text is None or text.startswith("max"):
        return None
    quota, period = text.split()
    return float(quota) / float(period)


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota is None or period is None or int(quota) <= 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None
