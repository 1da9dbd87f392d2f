"""`patamar calibrate`: new operating points from the operator's own texts, and without torch."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from cli.main import main
from multi_exit.bundle import Bundle, file_digest, load_bundle
from multi_exit.offline import every_exit
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput
from tests.conftest import toy_rows, write_csv

Row = tuple[str, str]
Calibrate = Callable[..., int]

# Enough for 1 % at 95 % confidence beside the texts that tune.
TEXTS = 500


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Labelled texts that training did not see, each once."""
    return list(dict(toy_rows(2 * TEXTS, seed=21)).items())[:TEXTS]


@pytest.fixture
def data(rows: list[Row], tmp_path: Path) -> Path:
    return write_csv(tmp_path / "own.csv", rows)


@pytest.fixture
def calibrate(toy_bundle: Bundle, tmp_path: Path) -> Calibrate:
    def run(*arguments: str | Path) -> int:
        new = [] if "--output" in arguments else ["--output", str(tmp_path / "new")]
        return main(["calibrate", str(toy_bundle.path), *map(str, arguments), *new])

    return run


def test_certificates_count_exactly_the_texts_that_did_not_tune(
    toy_bundle: Bundle, calibrate: Calibrate, rows: list[Row], data: Path, tmp_path: Path
) -> None:
    assert calibrate(data, "--label-column", "label", "--seed", "5") == 0
    manifest = load_bundle(tmp_path / "new").manifest
    runner = StageRunner(toy_bundle, provider="cpu", threads=1)
    encoder = toy_bundle.text_encoder()
    encoded = [encoder.encode(TextInput(text)) for text, _ in rows]
    outputs = every_exit(runner, toy_bundle.manifest, encoded)
    # Counted anew: the last 70 % of a permutation that the seed draws.
    certifying = np.random.default_rng(5).permutation(TEXTS)[150:]
    truth = np.array([manifest.labels.index(label) for _, label in rows])
    predicted = outputs.labels
    for point in manifest.operating_points:
        taken = outputs.exits_taken(Policy(point.thresholds))
        answers = predicted[np.arange(TEXTS), taken][certifying]
        full_depth = predicted[certifying, -1]
        assert point.samples == 350
        assert point.accuracy == pytest.approx((answers == truth[certifying]).mean())
        for certificate in point.certificates:
            if certificate.kind == "consistency":
                assert certificate.errors == int((answers != full_depth).sum())
                assert certificate.samples == 350
    kinds = {c.kind for point in manifest.operating_points for c in point.certificates}
    assert kinds == {"consistency", "accuracy_drop", "expected_disagreement"}
    default = manifest.point(str(manifest.default_point))
    assert default.promises("consistency", 0.01)
    assert len(set(default.thresholds)) > 1


def test_the_new_bundle_has_the_same_graphs_and_says_where_it_comes_from(
    toy_bundle: Bundle, calibrate: Calibrate, data: Path, tmp_path: Path
) -> None:
    assert calibrate(data) == 0
    found = load_bundle(tmp_path / "new")
    before, after = toy_bundle.manifest, found.manifest
    assert after.files == before.files
    assert after.golden == before.golden
    assert found.identifier != toy_bundle.identifier
    assert after.provenance.checkpoint_sha256 == before.provenance.checkpoint_sha256
    calibration = after.provenance.calibration
    assert calibration["config"] == before.provenance.calibration["config"]
    assert calibration["recalibrated"] == {
        "from_bundle": toy_bundle.identifier,
        "kind": "texts",
        "sha256": file_digest(data),
        "labelled": False,
        "repeated_rows": 0,
        "certifying_texts": 350,
        "tuning_texts": 150,
        "tune_share": 0.3,
        "seed": 0,
    }
    # The old one is as it was.
    assert load_bundle(toy_bundle.path).identifier == toy_bundle.identifier


def test_without_labels_nothing_is_said_about_accuracy(
    calibrate: Calibrate, data: Path, tmp_path: Path
) -> None:
    assert calibrate(data) == 0
    points = load_bundle(tmp_path / "new").manifest.operating_points
    assert all(point.accuracy is None for point in points)
    kinds = {c.kind for point in points for c in point.certificates}
    assert kinds == {"consistency", "expected_disagreement"}


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_other_formats_and_columns_give_the_same_points(
    calibrate: Calibrate, rows: list[Row], data: Path, tmp_path: Path, kind: str
) -> None:
    other = tmp_path / f"own.{kind}"
    with other.open("w", encoding="utf-8", newline="") as file:
        if kind == "tsv":
            csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE).writerows(
                [("utterance", "intent"), *rows]
            )
        else:
            file.writelines(json.dumps({"utterance": t, "intent": i}) + "\n" for t, i in rows)
    # One threshold for all exits: those by exit follow measured times, which vary.
    config = tmp_path / "one.toml"
    config.write_text("thresholds_by_exit = false\n")
    columns = ("--text-column", "utterance", "--label-column", "intent")
    shared = ("--config", config)
    assert calibrate(data, *shared, "--label-column", "label", "--output", tmp_path / "a") == 0
    assert calibrate(other, *shared, *columns, "--output", tmp_path / "b") == 0
    a, b = (load_bundle(tmp_path / name).manifest.operating_points for name in "ab")
    assert [p.thresholds for p in a] == [p.thresholds for p in b]
    assert [p.certificates for p in a] == [p.certificates for p in b]


def test_the_table_shows_every_point_and_what_it_promises(
    calibrate: Calibrate, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(data) == 0
    printed = capsys.readouterr().out
    manifest = load_bundle(tmp_path / "new").manifest
    for point in manifest.operating_points:
        assert f"\n{point.name}" in printed
        for certificate in point.certificates:
            covered = any(
                other.kind == certificate.kind and other.epsilon < certificate.epsilon
                for other in point.certificates
            )
            assert (certificate.statement in printed) is not covered
    assert f"{manifest.default_point}" in printed.split("(default)")[0].splitlines()[-1]


def test_a_setting_of_the_configuration_is_obeyed_and_recorded(
    calibrate: Calibrate, data: Path, tmp_path: Path
) -> None:
    config = tmp_path / "calibration.toml"
    config.write_text('epsilons = [0.03]\ndefault_epsilon = 0.03\nclasses = ["food"]\n')
    assert calibrate(data, "--config", config) == 0
    manifest = load_bundle(tmp_path / "new").manifest
    certificates = [c for point in manifest.operating_points for c in point.certificates]
    assert {c.epsilon for c in certificates} == {0.03}
    assert {c.label for c in certificates} == {None, "food"}
    assert manifest.provenance.calibration["config"]["classes"] == ["food"]


def test_repeated_texts_count_once_and_it_is_said(
    calibrate: Calibrate,
    rows: list[Row],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = [(text, "food") for text, label in rows[:40] if label != "food"]
    data = write_csv(tmp_path / "twice.csv", [*rows, *rows[40:60], *again])
    assert calibrate(data, "--label-column", "label") == 0
    note = capsys.readouterr().err
    assert f"{20 + len(again)} rows repeat an earlier text, {len(again)} of them under" in note
    recalibrated = load_bundle(tmp_path / "new").manifest.provenance.calibration["recalibrated"]
    assert recalibrated["repeated_rows"] == 20 + len(again)
    assert recalibrated["certifying_texts"] + recalibrated["tuning_texts"] == TEXTS


def test_few_texts_share_one_threshold_and_promise_less(
    calibrate: Calibrate, rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(write_csv(tmp_path / "few.csv", rows[:310])) == 0
    notes = capsys.readouterr().err
    assert "all exits share one" in notes
    assert "310 certifying texts cannot promise 0.5 %: that takes at least 598" in notes
    assert "promise 1 %" not in notes
    points = load_bundle(tmp_path / "new").manifest.operating_points
    assert all(point.samples == 310 and len(set(point.thresholds)) == 1 for point in points)


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        ("", (), "holds no rows"),
        ("text,label\n", (), "holds no rows"),
        ("utterance,intent\nrain,weather\n", (), "no column 'text'; it has 'utterance', 'intent'"),
        ("text\nrain\n", ("--label-column", "label"), "no column 'label'; it has 'text'"),
        ("text\nrain\n", ("--pair-column", "text"), "leave --pair-column out"),
        (
            "text,label\nrain,weather\nsun,sport\n",
            ("--label-column", "label"),
            "row 2: the bundle has no label 'sport' (1 unknown in all); it has",
        ),
        ('text\n"rain"\n"\u200b"\n', (), "row 2"),
        ("text\n" + "".join(f"{'rain ' * n}\n" for n in range(1, 59)), (), "takes 59"),
        ("text\nrain\n", ("--tune-share", "1"), "tune share"),
        ("text\nrain\n", ("--from-shadow", "x.jsonl"), "either a file of texts or"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(
    calibrate: Calibrate,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    content: str,
    arguments: Sequence[str],
    says: str,
) -> None:
    data = tmp_path / "own.csv"
    data.write_text(content, encoding="utf-8")
    assert calibrate(data, *arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert not (tmp_path / "new").exists()


def test_neither_a_users_folder_nor_the_bundle_itself_is_replaced(
    toy_bundle: Bundle,
    calibrate: Calibrate,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    assert calibrate(data, "--output", tmp_path / "thesis") == 2
    assert "not a bundle" in capsys.readouterr().err
    assert calibrate(data, "--output", toy_bundle.path) == 2
    assert "its own folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]
    assert load_bundle(toy_bundle.path).identifier == toy_bundle.identifier


def test_a_file_system_without_links_gets_copies(
    calibrate: Calibrate, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    assert calibrate(data) == 0
    found = load_bundle(tmp_path / "new")
    assert all((found.path / name).stat().st_nlink == 1 for name in found.manifest.files)


def test_calibrating_needs_nothing_that_the_serving_image_lacks(
    toy_bundle: Bundle, data: Path, tmp_path: Path
) -> None:
    lacking = ("torch", "transformers", "onnx", "onnxscript", "datasets", "pyarrow", "safetensors")
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {(*lacking, 'sklearn', 'scipy')!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from cli.main import main\n"
        f"arguments = ['calibrate', {str(toy_bundle.path)!r}, {str(data)!r}]\n"
        f"sys.exit(main([*arguments, '--output', {str(tmp_path / 'new')!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert load_bundle(tmp_path / "new").manifest.operating_points
