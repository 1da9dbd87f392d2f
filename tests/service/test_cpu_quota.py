"""Quotas as the kernel writes them, in version 1 and version 2 of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.cpu_quota import available_threads

AFFINITY = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, AFFINITY),
        ({"cpu.max": "max 100000"}, AFFINITY),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "150000 100000"}, min(2, AFFINITY)),
        ({"cpu.max": "6400000 100000"}, AFFINITY),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, AFFINITY),
    ],
    ids=str,
)
def test_threads_are_a_whole_number_within_quota_and_affinity(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    assert available_threads(tmp_path) == expected


def test_it_reads_this_machine_without_an_error() -> None:
    assert 1 <= available_threads() <= (os.cpu_count() or 1)
