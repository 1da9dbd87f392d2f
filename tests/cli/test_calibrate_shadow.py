"""`patamar calibrate --from-shadow`: points from what every exit answered live, without texts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.main import main
from multi_exit.bundle import Bundle, file_digest, load_bundle
from multi_exit.offline import every_exit
from multi_exit.outcome import ExitOutputs
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput
from tests.conftest import toy_rows, write_csv

# Enough for 1 % at 95 % confidence beside the rows that tune.
TEXTS = 500


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(dict(toy_rows(2 * TEXTS, seed=22)))[:TEXTS]


@pytest.fixture(scope="module")
def outputs(toy_bundle: Bundle, texts: list[str]) -> ExitOutputs:
    encoder = toy_bundle.text_encoder()
    runner = StageRunner(toy_bundle, provider="cpu", threads=1)
    encoded = [encoder.encode(TextInput(text)) for text in texts]
    return every_exit(runner, toy_bundle.manifest, encoded)


def _lines(outputs: ExitOutputs, bundle: str, sampled: float = 0.25) -> list[str]:
    """As service/shadow_log.py writes them."""
    return [
        json.dumps(
            {"bundle": bundle, "entropies": e, "labels": labels, "sampled": sampled},
            separators=(",", ":"),
        )
        + "\n"
        for e, labels in zip(outputs.entropy.tolist(), outputs.labels.tolist(), strict=True)
    ]


def _calibrate(bundle: Bundle, target: Path, *arguments: str | Path) -> int:
    return main(["calibrate", str(bundle.path), *map(str, arguments), "--output", str(target)])


def test_a_log_gives_the_certificates_that_its_texts_would(
    toy_bundle: Bundle, texts: list[str], outputs: ExitOutputs, tmp_path: Path
) -> None:
    log = tmp_path / "shadow.jsonl"
    log.write_text("".join(_lines(outputs, toy_bundle.identifier)))
    data = write_csv(tmp_path / "own.csv", [(text, "any") for text in texts])
    config = tmp_path / "one.toml"
    # One threshold for all exits: those by exit follow times, which a log does not hold.
    config.write_text("thresholds_by_exit = false\n")
    assert _calibrate(toy_bundle, tmp_path / "a", "--from-shadow", log, "--config", config) == 0
    assert _calibrate(toy_bundle, tmp_path / "b", data, "--config", config) == 0
    a, b = (load_bundle(tmp_path / name).manifest for name in "ab")
    assert any(point.certificates for point in a.operating_points)
    assert a.default_point == b.default_point
    for logged, read in zip(a.operating_points, b.operating_points, strict=True):
        assert logged.time_speedup is None
        assert logged.accuracy is None
        assert logged == read.model_copy(update={"time_speedup": None})
    assert a.provenance.calibration["recalibrated"] == {
        "from_bundle": toy_bundle.identifier,
        "kind": "shadow",
        "sha256": file_digest(log),
        "labelled": False,
        "rows_of_other_bundles": 0,
        "sampled": [0.25],
        "certifying_texts": 350,
        "tuning_texts": 150,
        "tune_share": 0.3,
        "seed": 0,
    }


def test_several_files_are_one_log_and_rows_of_other_bundles_are_counted(
    toy_bundle: Bundle, outputs: ExitOutputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _lines(outputs, toy_bundle.identifier)
    older, newer = tmp_path / "log.1", tmp_path / "log"
    older.write_text("".join([*lines[:300], *_lines(outputs, "f" * 12)[:7]]))
    # The last line is still being written.
    newer.write_text("".join([*lines[300:], lines[0][:25]]))
    arguments = ("--from-shadow", older, "--from-shadow", newer)
    assert _calibrate(toy_bundle, tmp_path / "new", *arguments) == 0
    assert "7 rows of other bundles" in capsys.readouterr().err
    origin = load_bundle(tmp_path / "new").manifest.provenance.calibration["recalibrated"]
    assert origin["certifying_texts"] + origin["tuning_texts"] == TEXTS
    assert origin["rows_of_other_bundles"] == 7


def test_shares_that_differ_are_pointed_out(
    toy_bundle: Bundle, outputs: ExitOutputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    half = ExitOutputs(outputs.logits[:250], outputs.entropy[:250])
    lines = [_lines(half, toy_bundle.identifier, share) for share in (0.01, 1.0)]
    log.write_text("".join(map("".join, lines)))
    assert _calibrate(toy_bundle, tmp_path / "new", "--from-shadow", log) == 0
    assert "different shares (0.01, 1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bundle": "f" * 12}, "no row is of bundle"),
        ({"entropies": [0.1]}, "line 1: 1 entropies where the bundle has 3 exits"),
        ({"labels": [0, 1, 7]}, "line 1: label 7 where the bundle has 3 labels"),
        ({"labels": [0, 1, -1]}, "line 1: labels.2"),
        ({"labels": [0, 1, True]}, "line 1: labels.2"),
        ({"entropies": [0.1, 0.2, 1.5]}, "line 1: entropies.2"),
        ({"entropies": [0.1, 0.2, float("nan")]}, "line 1: entropies.2"),
        ({"sampled": 0}, "line 1: sampled"),
        ({"entropies": None}, "line 1: entropies"),
    ],
)
def test_a_line_that_does_not_fit_is_named(
    toy_bundle: Bundle,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    says: str,
) -> None:
    line = {
        "bundle": toy_bundle.identifier,
        "entropies": [0.5, 0.2, 0.1],
        "labels": [0, 1, 1],
        "sampled": 0.01,
    }
    log = tmp_path / "log"
    log.write_text(json.dumps(line | change) + "\n")
    assert _calibrate(toy_bundle, tmp_path / "new", "--from-shadow", log) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"), [("", "no rows at all"), ("a text\n", "line 1: Invalid JSON")]
)
def test_a_file_that_is_no_log_is_refused(
    toy_bundle: Bundle,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    says: str,
) -> None:
    (tmp_path / "log").write_text(content)
    assert _calibrate(toy_bundle, tmp_path / "new", "--from-shadow", tmp_path / "log") == 2
    assert says in capsys.readouterr().err


def test_a_log_is_read_without_onnxruntime_and_torch(
    toy_bundle: Bundle, outputs: ExitOutputs, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("".join(_lines(outputs, toy_bundle.identifier)))
    program = (
        "import sys\n"
        "from cli.main import main\n"
        f"arguments = ['calibrate', {str(toy_bundle.path)!r}, '--from-shadow', {str(log)!r}]\n"
        f"assert main([*arguments, '--output', {str(tmp_path / 'new')!r}]) == 0\n"
        "assert not {'torch', 'transformers', 'onnxruntime'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_entropies_are_compared_as_the_graphs_gave_them(
    toy_bundle: Bundle, outputs: ExitOutputs, tmp_path: Path
) -> None:
    from export.shadow_rows import read_shadow_rows

    log = tmp_path / "log"
    log.write_text("".join(_lines(outputs, toy_bundle.identifier)))
    answers = read_shadow_rows([log], toy_bundle).answers
    np.testing.assert_array_equal(answers.entropy, outputs.entropy)
    assert answers.entropy.dtype == np.float32
    np.testing.assert_array_equal(answers.labels, outputs.labels)
