"""Cells: what is written is read, a cut line is survived, and configurations are portable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multi_exit.errors import DataError
from tests.training.experiment.cells import make_cell
from tests.training.models import small_config
from training.config import load_config
from training.experiment.cell import (
    Cell,
    add_cell,
    configuration_digest,
    portable,
    read_cells,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SCORES = st.floats(-1, 1)

# A line as the first experiments wrote it: such files must stay readable.
EARLY_LINE = (
    '{"task":"sst2","method":"acl-cl","seed":1,"settings":{"objective.method":"acl-cl"},'
    '"metric":"accuracy","split":"test","samples":872,"exits":[1,2],'
    '"score_by_exit":[0.770642,0.776376],"quality_speed":[[2.0,0.776376],[1.0,0.770642]],'
    '"exit_rules":{"entropy":[[2.0,0.776376],[1.0,0.770642]]},"steps":250,'
    '"training_seconds":66.2,"contrastive_kept_by_exit":[0.964,0.912],'
    '"configuration":{"data":{"glue":"sst2","folder":"sst2","calibration":0.0},'
    '"run":{"seed":1}},"configuration_sha256":"0821af","data_sha256":{"test":"c141ed"},'
    '"library_versions":{"numpy":"2.4.6"}}'
)


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    exits = tuple(sorted(draw(st.sets(st.integers(1, 24), min_size=1, max_size=6))))
    point = st.tuples(st.floats(exits[0], exits[-1]), SCORES)
    points = st.lists(point, min_size=1, max_size=4).map(tuple)
    each = {"min_size": len(exits), "max_size": len(exits)}
    return Cell(
        task=draw(NAMES),
        method=draw(NAMES),
        seed=draw(st.integers(0, 2**40)),
        settings=draw(st.dictionaries(NAMES, NAMES, max_size=2)),
        metric=draw(st.sampled_from(["accuracy", "f1", "matthews"])),
        split=draw(NAMES),
        samples=draw(st.integers(1, 10**6)),
        exits=exits,
        score_by_exit=tuple(draw(st.lists(SCORES, **each))),
        quality_speed=draw(points),
        exit_rules=draw(st.dictionaries(NAMES, points, max_size=2)),
        steps=draw(st.integers(0, 10**9)),
        training_seconds=draw(st.floats(0, 1e9)),
        contrastive_kept_by_exit=tuple(draw(st.lists(st.floats(0, 1), **each))),
        configuration=draw(st.dictionaries(NAMES, st.integers(), max_size=2)),
        configuration_sha256=draw(NAMES),
        data_sha256=draw(st.dictionaries(NAMES, NAMES, max_size=2)),
        library_versions={},
    )


@settings(max_examples=40)
@given(written=st.lists(cells(), max_size=4, unique_by=lambda cell: cell.key))
def test_what_is_added_is_read(written: list[Cell], tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.unlink(missing_ok=True)
    for cell in written:
        add_cell(path, cell)
    assert not written or read_cells(path) == tuple(written)


def test_an_early_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(EARLY_LINE + "\n")
    (cell,) = read_cells(path)
    assert (cell.layers, cell.mean_score) == (2, pytest.approx(0.773509))
    assert cell.model_dump_json() == EARLY_LINE


@settings(max_examples=40)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_cut_last_line_is_left_out_and_written_over(share: float, tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    first, second = make_cell(task="é", seed=1), make_cell(task="é", seed=2)
    whole = second.model_dump_json().encode()
    path.write_bytes(first.model_dump_json().encode() + b"\n" + whole[: int(share * len(whole))])
    assert read_cells(path) == (first,)
    add_cell(path, second)
    assert read_cells(path) == (first, second)


def test_of_equal_keys_the_last_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    same = {"configuration_sha256": "0"}
    first = make_cell().model_copy(update=same)
    second = make_cell(gain=0.01).model_copy(update=same)
    elsewhere = first.model_copy(update={"split": "validation"})
    for cell in (first, elsewhere, second):
        add_cell(path, cell)
    assert read_cells(path) == (second, elsewhere)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "1"}, "seed"),
        ({"metric": "bleu"}, "metric"),
        ({"exits": [1, 3, 2, 4, 5, 6]}, "exits must ascend"),
        ({"exits": [0, 1, 2, 3, 4, 5]}, "exits must ascend"),
        ({"exits": []}, "exits"),
        ({"score_by_exit": [0.5]}, "score_by_exit: 1 for 6 exits"),
        ({"contrastive_kept_by_exit": [1.0] * 5}, "contrastive_kept_by_exit: 5 for 6 exits"),
        ({"contrastive_kept_by_exit": [1.5] * 6}, "contrastive_kept_by_exit"),
        ({"score_by_exit": [91.0] * 6}, "score_by_exit"),
        ({"score_by_exit": [None] * 6}, "score_by_exit"),
        ({"quality_speed": []}, "quality_speed"),
        ({"exit_rules": {"margin": [[7.0, 0.5]]}}, "margin leaves the layers 1 to 6"),
        ({"exit_rules": {"margin": [[0.5, 0.5]]}}, "margin leaves the layers 1 to 6"),
        ({"samples": 0}, "samples"),
        ({"task": ""}, "task"),
        ({"speed": 1}, "speed"),
    ],
)
def test_a_line_that_is_no_cell_is_named(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "cells.jsonl"
    good = make_cell()
    bad = json.dumps({**good.model_dump(mode="json"), **change})
    path.write_text(good.model_dump_json() + "\n\n" + bad + "\n")
    with pytest.raises(DataError, match=rf"cells\.jsonl, line 3: .*{message}"):
        read_cells(path)


def test_a_broken_line_inside_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    line = make_cell().model_dump_json()
    path.write_text(line[:50] + "\n" + line + "\n")
    with pytest.raises(DataError, match=r"line 1: .*Invalid JSON"):
        read_cells(path)
    with pytest.raises(DataError, match=r"cannot read cells from .*none\.jsonl"):
        read_cells(tmp_path / "none.jsonl")


def test_a_configuration_has_the_same_digest_in_another_folder(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    digests = set()
    for folder in (tmp_path / "one", tmp_path / "two" / "deep"):
        shutil.copytree(tiny_bert, folder / "models" / "tiny")
        (folder / "texts").mkdir()
        shutil.copy(few_texts, folder / "texts" / "train.csv")
        (folder / "task.toml").write_text(
            '[data]\ntrain = "texts/train.csv"\ntest = "texts/test.csv"\n'
            '[model]\nbackbone = "./models/tiny"\n'
        )
        config = load_config(folder / "task.toml")
        assert str(folder) in config.model_dump_json(), "else there is nothing to leave out"
        assert str(folder) not in json.dumps(portable(config))
        digests.add(configuration_digest(config))
    assert len(digests) == 1
    for change in ("run.seed=8", "objective.method=ce", "data.test=0.1", "data.train=other.csv"):
        changed = configuration_digest(load_config(folder / "task.toml", [change]))
        assert changed not in digests, change


def test_hub_names_and_default_values_do_not_change_a_digest(few_texts: Path) -> None:
    plain = small_config(few_texts, Path("bert"), model={"backbone": "org/name"})
    assert portable(plain)["model"]["backbone"] == "org/name"
    spelt_out = small_config(
        few_texts, Path("bert"), model={"backbone": "org/name", "dropout": 0.1}
    )
    assert configuration_digest(plain) == configuration_digest(spelt_out)
