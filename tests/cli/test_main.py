"""The command line: help, refusals in one sentence, and that serving never loads torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import COMMANDS, main
from multi_exit.bundle import Bundle


def test_every_subcommand_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as leaving:
            main([name, "--help"])
        assert leaving.value.code == 0
        assert f"patamar {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "/nowhere"], "/nowhere is not a bundle"),
        (["train", "/nowhere.toml", "--output", "/tmp/x"], "/nowhere.toml"),
        (["evaluate", "/nowhere"], "not a checkpoint"),
        (["export", "/nowhere", "--output", "/tmp/x"], "not a checkpoint"),
        (["classify", "/nowhere", "-"], "not a bundle"),
    ],
)
def test_bad_input_is_one_sentence_and_status_two(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


def test_a_misspelt_setting_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], toy_bundle: Bundle
) -> None:
    monkeypatch.setenv("PATAMAR_TRESHOLD", "0.3")
    assert main(["serve", str(toy_bundle.path)]) == 2
    assert "PATAMAR_TRESHOLD" in capsys.readouterr().err


def test_serving_and_classifying_never_load_torch(toy_bundle: Bundle) -> None:
    program = (
        "import sys, io; sys.stdin = io.StringIO('rain and drum\\n')\n"
        "from cli.main import main\n"
        f"assert main(['classify', {str(toy_bundle.path)!r}, '-']) == 0\n"
        "import service.app\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["label"] in toy_bundle.manifest.labels


def test_classify_answers_lines_in_order_and_faster_at_a_higher_threshold(
    toy_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["rain wind the sun", "drum and guitar with band", "soup bread very pepper"] * 5
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n")
    layers = {}
    for threshold in ("0", "1"):
        file = str(tmp_path / "texts.txt")
        assert main(["classify", str(toy_bundle.path), file, "--threshold", threshold]) == 0
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [answer["label"] for answer in answers] == ["weather", "music", "food"] * 5
        layers[threshold] = {answer["exit_layer"] for answer in answers}
    assert layers == {"0": {3}, "1": {1}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"fine\n \n", "line 2"),
        (b"fine\n\xff\xfe\n", "not UTF-8"),
    ],
)
def test_classify_names_the_line_it_cannot_take(
    toy_bundle: Bundle,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    says: str,
) -> None:
    (tmp_path / "texts.txt").write_bytes(content)
    assert main(["classify", str(toy_bundle.path), str(tmp_path / "texts.txt")]) == 2
    assert says in capsys.readouterr().err


def test_classify_refuses_a_layer_before_the_first_exit(
    toy_bundle: Bundle, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("rain\n")
    arguments = ["classify", str(toy_bundle.path), str(tmp_path / "texts.txt")]
    assert main([*arguments, "--max-layer", "0"]) == 2
    assert "--max-layer must be at least 1" in capsys.readouterr().err
    assert main([*arguments, "--threshold", "1.5"]) == 2
    assert "[0, 1]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        (["--max-disagreement", "1e-9"], "max_disagreement: no operating point is certified"),
        (["--speed", "100"], "speed: no operating point reaches 100 times"),
        (["--max-accuracy-drop", "0.5", "--max-layer", "2"], "max_layer and max_accuracy_drop"),
    ],
)
def test_classify_refuses_a_contract_that_nothing_keeps(
    knobs: list[str],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    toy_bundle: Bundle,
) -> None:
    (tmp_path / "texts.txt").write_text("rain and drum\n", encoding="utf-8")
    assert main(["classify", str(toy_bundle.path), str(tmp_path / "texts.txt"), *knobs]) == 2
    assert says in capsys.readouterr().err


def test_classify_under_a_contract_runs_the_point_that_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toy_bundle: Bundle
) -> None:
    (tmp_path / "texts.txt").write_text("rain and drum\nstone and river\n" * 5, encoding="utf-8")
    arguments = ["classify", str(toy_bundle.path), str(tmp_path / "texts.txt")]
    fastest = max(toy_bundle.manifest.operating_points, key=lambda point: point.speedup)
    assert main([*arguments, "--speed", f"{fastest.speedup}"]) == 0
    fast = [json.loads(line)["exit_layer"] for line in capsys.readouterr().out.splitlines()]
    assert main([*arguments, "--threshold", "0"]) == 0
    full = [json.loads(line)["exit_layer"] for line in capsys.readouterr().out.splitlines()]
    assert sum(fast) < sum(full)
