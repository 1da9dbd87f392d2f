"""Quotas as the kernel writes them, in version 1 and version 2 of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.cpu_quota import available_threads, cpu_quota

QUOTAS = [
    ({"cpu.max": "150000 100000"}, 1.5),
    ({"cpu.max": "max 100000"}, None),
    ({}, None),
    ({"cpu.max": "400000 100000", "pod/cpu.max": "max 100000"}, 4.0),
    ({"cpu.max": "max 100000", "pod/cpu.max": "50000 100000"}, 0.5),
    ({"cpu.max": "200000 100000", "pod/cpu.max": "300000 100000"}, 2.0),
    ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 2.5),
    ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
]


@pytest.mark.parametrize(("files", "expected"), QUOTAS)
def test_the_tightest_quota_of_the_process_s_groups_counts(
    tmp_path: Path, files: dict[str, str], expected: float | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    own = tmp_path / "own"
    own.write_text("0::/pod\n" if not any("cfs" in name for name in files) else "4:cpu:/pod\n")
    assert cpu_quota(tmp_path, own) == expected


def test_a_group_path_of_the_host_falls_back_to_the_container_s_root(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "own").write_text("0::/kubepods/burstable/pod1\n")
    assert cpu_quota(tmp_path, tmp_path / "own") == 1.0


def test_threads_are_a_whole_number_within_quota_and_affinity(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/\n")
    affinity = len(os.sched_getaffinity(0))
    assert available_threads(tmp_path, own) == affinity
    (tmp_path / "cpu.max").write_text("20000 100000\n")
    assert available_threads(tmp_path, own) == 1
    (tmp_path / "cpu.max").write_text("6400000 100000\n")
    assert available_threads(tmp_path, own) == affinity


def test_it_reads_this_machine_without_an_error() -> None:
    assert 1 <= available_threads() <= (os.cpu_count() or 1)
