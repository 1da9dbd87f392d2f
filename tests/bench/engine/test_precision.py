"""Comparison of an int8 bundle with the fp32 one, on the toy bundle."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.engine.precision import (
    SHAPES,
    ExitComparison,
    StageSize,
    StageSpeed,
    compare_exits,
    compare_sizes,
    compare_stages,
    main,
    tables,
)
from bench.interleave import Ratio
from export.qdq import activation_ranges, write_int8
from export.seal import write_manifest
from multi_exit.bundle import MANIFEST_FILE, Bundle, load_bundle
from multi_exit.errors import ConfigurationError
from multi_exit.offline import every_exit
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput
from tests.conftest import toy_rows
from tests.export.spoiled_graph import write_spoiled_int8


@pytest.fixture(scope="module")
def int8_bundle(toy_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The toy bundle in int8, its last stage spoiled, so that answers differ; never checked."""
    folder = tmp_path_factory.mktemp("precision") / "int8"
    shutil.copytree(toy_bundle.path, folder)
    (folder / MANIFEST_FILE).unlink()
    encoder = toy_bundle.text_encoder()
    encoded = [encoder.encode(TextInput(text)) for text, _ in toy_rows(50, seed=7)]
    for stage, ranges in zip(
        toy_bundle.manifest.stages, activation_ranges(toy_bundle, encoded), strict=True
    ):
        last = stage is toy_bundle.manifest.stages[-1]
        write = write_spoiled_int8 if last else write_int8
        write(toy_bundle.path / stage.file, ranges, folder / stage.file)
    manifest = toy_bundle.manifest.model_copy(update={"precision": "int8"})
    write_manifest(folder, lambda files: manifest.model_copy(update={"files": files}))
    return load_bundle(folder)


def test_exits_are_compared_text_by_text(toy_bundle: Bundle, int8_bundle: Bundle) -> None:
    encoder = toy_bundle.text_encoder()
    encoded = [encoder.encode(TextInput(text)) for text, _ in toy_rows(100, seed=8)]
    answers = [
        every_exit(StageRunner(bundle, provider="cpu", threads=1), bundle.manifest, encoded).labels
        for bundle in (toy_bundle, int8_bundle)
    ]
    # The true labels are taken to be what fp32 says at the last exit, so that each is known.
    compared = compare_exits(toy_bundle, int8_bundle, encoded, answers[0][:, -1])
    assert [exit_.exit_layer for exit_ in compared] == list(toy_bundle.manifest.exits)
    assert compared[-1].fp32_accuracy == 1.0
    assert compared[-1].int8_accuracy == compared[-1].agreement < 0.95
    same = sum(int(a == b) for a, b in zip(answers[0][:, 0], answers[1][:, 0], strict=True))
    assert compared[0].agreement == pytest.approx(same / 100)


def test_every_stage_is_timed_at_every_shape(toy_bundle: Bundle, int8_bundle: Bundle) -> None:
    shapes = [(1, 8), (4, 16)]
    speeds = compare_stages(toy_bundle, int8_bundle, rounds=3, shapes=shapes)
    found = [(speed.rows, speed.length, speed.stage) for speed in speeds]
    assert found == [(*shape, stage) for shape in shapes for stage in (1, 2, 3)]
    for speed in speeds:
        assert speed.fp32_ms > 0
        assert speed.int8_ms > 0
        assert speed.speedup.low <= speed.speedup.median <= speed.speedup.high
    assert len(set(SHAPES)) == 9


def test_bundles_of_other_stages_are_refused(toy_bundle: Bundle, int8_bundle: Bundle) -> None:
    manifest = int8_bundle.manifest
    shorter = replace(
        int8_bundle, manifest=manifest.model_copy(update={"stages": manifest.stages[:2]})
    )
    with pytest.raises(ConfigurationError, match="same stages"):
        compare_stages(toy_bundle, shorter, rounds=1, shapes=[(1, 8)])


def test_sizes_are_those_of_the_files(toy_bundle: Bundle, int8_bundle: Bundle) -> None:
    sizes = compare_sizes(toy_bundle, int8_bundle)
    file = toy_bundle.manifest.stages[2].file
    assert sizes[2] == StageSize(
        stage=3,
        fp32_bytes=len((toy_bundle.path / file).read_bytes()),
        int8_bytes=len((int8_bundle.path / file).read_bytes()),
    )
    assert sizes[2].int8_bytes < sizes[2].fp32_bytes


def test_tables_name_every_figure_with_its_unit() -> None:
    table = tables(
        [StageSize(stage=1, fp32_bytes=7_777_000, int8_bytes=2_480_000)],
        [ExitComparison(exit_layer=2, fp32_accuracy=0.9, int8_accuracy=0.89, agreement=0.985)],
        [
            StageSpeed(
                stage=1,
                rows=8,
                length=32,
                fp32_ms=10.0,
                int8_ms=4.0,
                speedup=Ratio(2.5, 2.4, 2.6),
            )
        ],
    )
    assert "| 1 | 7.8 | 2.5 |" in table
    assert "| 2 | 90.00% | 89.00% | 98.50% |" in table
    assert "| 1 | 8 | 32 | 10.00 | 4.00 | 2.500 (2.400 to 2.600) |" in table


def test_the_command_prints_one_json_object(
    toy_bundle: Bundle,
    toy_checkpoint: Path,
    int8_bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("bench.engine.precision._SECONDS_A_TIMING", 1e-4)
    monkeypatch.setattr("bench.engine.precision.SHAPES", ((1, 8),))
    bundles = [str(toy_bundle.path), str(int8_bundle.path)]
    main([*bundles, "--checkpoint", str(toy_checkpoint), "--rounds", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [len(found[name]) for name in ("sizes", "exits", "speeds")] == [3, 3, 3]
    assert found["exits"][0]["agreement"] > 0.8
    assert found["machine"]["versions"]["onnxruntime"]
    assert np.isfinite(found["speeds"][0]["speedup"]["median"])
    assert str(toy_bundle.path) in found["command"]
