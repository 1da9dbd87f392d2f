"""Bundles: what is damaged, foreign or disagrees with itself is refused, and named."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from multi_exit.bundle import Bundle, file_digest, load_bundle
from multi_exit.certificate import consistency_certificate
from multi_exit.errors import BundleError
from multi_exit.policy import Policy


@pytest.fixture
def copy(stage_bundle: Bundle, tmp_path: Path) -> Path:
    shutil.copytree(stage_bundle.path, tmp_path / "bundle")
    return tmp_path / "bundle"


def _change(bundle: Path, **values: Any) -> None:
    path = bundle / "bundle.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_copy_is_the_same_bundle(copy: Path, stage_bundle: Bundle) -> None:
    found = load_bundle(copy)
    assert found.manifest == stage_bundle.manifest
    assert found.identifier == stage_bundle.identifier


@pytest.mark.parametrize("file", ["stage_02.onnx", "tokenizer.json", "merge.onnx"])
def test_one_changed_byte_is_found_and_the_file_named(copy: Path, file: str) -> None:
    content = bytearray((copy / file).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(BundleError, match=file):
        load_bundle(copy)


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "stage_01.onnx").unlink()
    with pytest.raises(BundleError, match=r"stage_01\.onnx is missing"):
        load_bundle(copy)


def test_a_folder_without_manifest_says_how_to_make_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="patamar export"):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": 2},
        {"unheard_of": 1},
        {"exits": [1, 2]},
        {"exits": [1, 2, 4]},
        {"exits": [4, 3, 1]},
        {"exits": [1, 1, 4]},
        {"layers": 5},
        {"labels": ["a"]},
        {"stages": []},
        {"files": {}},
        {"model_inputs": []},
        {"model_inputs": ["attention_mask", "input_ids"]},
        {"model_inputs": ["input_ids", "attention_mask", "position_ids"]},
        {"precision": "fp64"},
        {"labels": ["a", "a", "b"]},
        {"default_point": "nowhere"},
        {"length_buckets": [8, 16]},
        {"length_buckets": [6, 4, 12]},
        {"tokenizer_file": "../tokenizer.json"},
        {"tokenizer_file": "other.json"},
        {"golden_tolerance": float("nan")},
    ],
    ids=str,
)
def test_a_manifest_of_another_format_or_at_odds_with_itself_is_refused(
    copy: Path, changes: dict[str, Any]
) -> None:
    _change(copy, **changes)
    with pytest.raises(BundleError, match=r"bundle\.json"):
        load_bundle(copy)


@pytest.mark.parametrize(
    "name",
    [
        "../tokenizer.json",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "..",
        ".",
        "",
        ".hidden",
        "a b",
        "a\n",
        "é",
    ],
)
@pytest.mark.parametrize("field", ["tokenizer_file", "merge_file", "stages", "files"])
def test_a_file_name_that_could_leave_the_folder_is_refused(
    copy: Path, field: str, name: str
) -> None:
    manifest = json.loads((copy / "bundle.json").read_text())
    old = manifest["stages"][0]["file"] if field in ("stages", "files") else manifest[field]
    if field != "files":
        manifest["files"][name] = manifest["files"].pop(old)
    changed: dict[str, Any] = {field: name}
    if field == "stages":
        changed = {"stages": [{**manifest["stages"][0], "file": name}, *manifest["stages"][1:]]}
    if field == "files":
        changed = {"files": {**manifest["files"], name: "0" * 64}}
    _change(copy, **{"files": manifest["files"], **changed})
    with pytest.raises(BundleError, match=r"(?s)bundle\.json.*(pattern|must list)"):
        load_bundle(copy)


def test_a_manifest_whose_parts_disagree_says_all_that_is_wrong(copy: Path) -> None:
    _change(copy, labels=["a", "a", "b"], default_point="nowhere", layers=9)
    with pytest.raises(BundleError, match=r"last exit.*labels must differ.*default_point"):
        load_bundle(copy)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("golden", {"labels": ["no"]}),
        ("golden", {"entropies": [0.1, 0.2]}),
        ("golden", {"logits": [[0.0, 0.0, 0.0]]}),
        ("golden", {"logits": [[0.0], [0.0], [0.0]]}),
        ("operating_points", {"thresholds": [0.1, 0.2]}),
        ("operating_points", {"thresholds": [0.1, 0.2, 1.5]}),
        ("stages", {"first_layer": 2}),
        ("stages", {"exit_layer": 2}),
    ],
    ids=str,
)
def test_parts_that_do_not_fit_the_exits_are_refused(
    copy: Path, part: str, changes: dict[str, Any]
) -> None:
    manifest = json.loads((copy / "bundle.json").read_text())
    first, *rest = manifest[part]
    _change(copy, **{part: [{**first, **changes}, *rest]})
    with pytest.raises(BundleError, match=r"bundle\.json"):
        load_bundle(copy)


def test_two_operating_points_of_one_name_are_refused(copy: Path) -> None:
    manifest = json.loads((copy / "bundle.json").read_text())
    _change(copy, operating_points=manifest["operating_points"] * 2)
    with pytest.raises(BundleError, match="different names"):
        load_bundle(copy)


def test_a_folder_in_the_place_of_a_file_is_named(copy: Path) -> None:
    (copy / "merge.onnx").unlink()
    (copy / "merge.onnx").mkdir()
    with pytest.raises(BundleError, match=r"merge\.onnx"):
        load_bundle(copy)


def test_a_certificate_survives_the_way_to_disk_and_back(copy: Path) -> None:
    certificate = consistency_certificate(3, 4000, epsilon=0.01, delta=0.05)
    assert certificate is not None
    point = json.loads((copy / "bundle.json").read_text())["operating_points"][0]
    _change(copy, operating_points=[{**point, "certificates": [asdict(certificate)]}])
    found = load_bundle(copy).manifest.point("fast")
    assert found.certificates == (certificate,)
    assert found.policy == Policy((0.5, 0.4, 0.0))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_manifest_that_is_no_json_object_is_refused(copy: Path, content: bytes) -> None:
    (copy / "bundle.json").write_bytes(content)
    with pytest.raises(BundleError, match=r"bundle\.json"):
        load_bundle(copy)


def test_the_identifier_changes_with_the_manifest(copy: Path, stage_bundle: Bundle) -> None:
    _change(copy, name="another")
    assert load_bundle(copy).identifier != stage_bundle.identifier


def test_a_file_that_no_stage_names_is_refused(copy: Path) -> None:
    files = json.loads((copy / "bundle.json").read_text())["files"]
    (copy / "extra.onnx").write_bytes(b"x")
    _change(copy, files={**files, "extra.onnx": file_digest(copy / "extra.onnx")})
    with pytest.raises(BundleError, match="every file that is named"):
        load_bundle(copy)
