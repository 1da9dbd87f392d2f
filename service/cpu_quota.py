"""How many processors this process may really use: affinity and cgroup quota, not the machine's."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_threads(cgroup: Path = _CGROUP) -> int:
    """Whole processors available, at least 1; a quota of 1.5 processors counts as 2."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processors = affinity or 1
    quota = _version_two(cgroup) or _version_one(cgroup)
    return max(1, min(processors, math.ceil(quota)) if quota else processors)


def _version_two(cgroup: Path) -> float | None:
    fields = _read(cgroup / "cpu.max").split()
    return _share(fields[0], fields[1]) if len(fields) == 2 else None


def _version_one(cgroup: Path) -> float | None:
    return _share(
        _read(cgroup / "cpu" / "cpu.cfs_quota_us"), _read(cgroup / "cpu" / "cpu.cfs_period_us")
    )


def _share(quota: str, period: str) -> float | None:
    try:
        allowed, of = float(quota), float(period)
    except ValueError:
        # "max" means no limit.
        return None
    return allowed / of if allowed > 0 and of > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
