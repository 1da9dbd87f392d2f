"""GLUE's own formats, from small files laid out as the true ones are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from multi_exit.errors import DataError
from training.data import DataConfig, LabelledExample, load_splits
from training.data.config import GlueTask
from training.data.glue import FORMATS, glue_labels, read_glue

MNLI_HEADER = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label"
)
MNLI_ROW = "0\t31193\t31193n\tgov\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tOne.\tTwo.\tneutral\tneutral"

FILES: dict[GlueTask, tuple[str, list[LabelledExample]]] = {
    "cola": (
        'gj04\t1\t\tOur friends won\'t buy "this.\ngj04\t0\t*\tThey drank the pub".\n',
        [
            LabelledExample("Our friends won't buy \"this.", "acceptable"),
            LabelledExample('They drank the pub".', "unacceptable"),
        ],
    ),
    "sst2": (
        'sentence\tlabel\nhide new " secretions \t0\nlovely \t1\n',
        [
            LabelledExample('hide new " secretions ', "negative"),
            LabelledExample("lovely ", "positive"),
        ],
    ),
    "mrpc": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        '1\t702876\t702977\tHe said " it .\tIt " he said .\r\n0\t1\t2\tOne .\tTwo .\r\n',
        [
            LabelledExample('He said " it .', "equivalent", 'It " he said .'),
            LabelledExample("One .", "not_equivalent", "Two ."),
        ],
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        '133273\t213221\t213222\tHow is "it?\tWhy?\t0\n1\t2\t3\tWhat?\tWhat?\t1\n',
        [
            LabelledExample('How is "it?', "not_duplicate", "Why?"),
            LabelledExample("What?", "duplicate", "What?"),
        ],
    ),
    "mnli": (
        f"{MNLI_HEADER}\n{MNLI_ROW}\n",
        [LabelledExample("One.", "neutral", "Two.")],
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn 1900.\tentailment\n"
        '1\tWho?\tThe "act.\tnot_entailment\n',
        [
            LabelledExample("When?", "entailment", "In 1900."),
            LabelledExample("Who?", "not_entailment", 'The "act.'),
        ],
    ),
    "rte": (
        "index\tsentence1\tsentence2\tlabel\n0\tNo Weapons.\tWeapons.\tnot_entailment\n"
        "1\tA place.\tPlace.\tentailment\n",
        [
            LabelledExample("No Weapons.", "not_entailment", "Weapons."),
            LabelledExample("A place.", "entailment", "Place."),
        ],
    ),
}


def _write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode("utf-8"))
    return path


@pytest.mark.parametrize("task", FILES)
def test_every_row_is_read_as_the_task_lays_it_out(tmp_path: Path, task: GlueTask) -> None:
    content, expected = FILES[task]
    assert read_glue(_write(tmp_path / "train.tsv", content), task) == expected


@pytest.mark.parametrize("task", FILES)
def test_as_many_rows_as_lines_whatever_the_quotes(tmp_path: Path, task: GlueTask) -> None:
    content, _ = FILES[task]
    lines = content.splitlines()
    header = lines[:1] if FORMATS[task].has_header else []
    rows = lines[len(header) :] * 50
    path = _write(tmp_path / "train.tsv", "\n".join([*header, *rows]))
    assert len(read_glue(path, task)) == len(rows)


def test_label_orders_are_those_of_the_tasks() -> None:
    assert glue_labels("cola") == ("unacceptable", "acceptable")
    assert glue_labels("mrpc") == ("not_equivalent", "equivalent")
    assert glue_labels("mnli") == ("entailment", "neutral", "contradiction")
    assert glue_labels("rte") == ("entailment", "not_entailment")


def test_mnli_reads_the_matched_evaluation_file() -> None:
    assert FORMATS["mnli"].dev == "dev_matched.tsv"


@pytest.mark.parametrize(
    ("task", "content", "reason"),
    [
        ("rte", "index\tsentence1\tlabel\n0\ta\tb\n", "no column 'sentence2'; it is not a rte"),
        ("rte", "", "holds no rows"),
        ("rte", "index\tsentence1\tsentence2\tlabel\n", "holds no rows"),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\n", "line 2: 3 fields where"),
        (
            "rte",
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\ta\tb\tneutral\n",
            r"line 3: unknown label 'neutral' in column 'label'; known are entailment",
        ),
        ("sst2", "sentence\tlabel\n \t1\n", "line 2: column 'sentence' is empty"),
        ("cola", "gj04\t1\tOur friends.\n", "line 1: 3 fields where there should be 4"),
        ("cola", "gj04\t2\t\tOur friends.\n", "line 1: unknown label '2'"),
        ("cola", "gj04\t1\t\tOur\tfriends.\n", "line 1: 5 fields where there should be 4"),
        ("sst2", "sentence\tlabel\na\t1\t\n", "line 2: 3 fields where there should be 2"),
        ("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\n", "no whole row"),
    ],
)
def test_a_file_of_another_layout_is_refused_by_line(
    tmp_path: Path, task: GlueTask, content: str, reason: str
) -> None:
    path = _write(tmp_path / "train.tsv", content)
    with pytest.raises(DataError, match=reason) as caught:
        read_glue(path, task)
    assert str(path) in str(caught.value)


def test_the_damaged_lines_of_qqp_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The official train.tsv has questions broken over lines, and a few without text.
    content = FILES["qqp"][0] + '"\tWas he a real figure?\t0\n5\t6\t7\t \tWhy?\t0\n'
    path = _write(tmp_path / "train.tsv", content)
    with caplog.at_level(logging.WARNING):
        assert read_glue(path, "qqp") == FILES["qqp"][1]
    assert "left out 2 damaged lines of 4, the first is line 4" in caplog.text


def test_a_folder_gives_training_and_evaluation_texts(tmp_path: Path) -> None:
    _write(tmp_path / "train.tsv", "sentence\tlabel\n" + "bad \t0\ngood \t1\n" * 1)
    rows = "".join(f"text {row} \t{row % 2}\n" for row in range(40))
    _write(tmp_path / "train.tsv", "sentence\tlabel\n" + rows)
    _write(tmp_path / "dev.tsv", "sentence\tlabel\nnever seen \t1\n")
    splits = load_splits(DataConfig(glue="sst2", folder=tmp_path, validation=0.1, calibration=0.2))
    assert splits.labels == ("negative", "positive")
    assert [example.text for example in splits.test] == ["never seen "]
    sizes = [len(splits.train), len(splits.validation), len(splits.calibration)]
    assert sizes == [28, 4, 8]


def test_tasks_report_their_own_metrics(tmp_path: Path) -> None:
    _write(tmp_path / "train.tsv", FILES["mrpc"][0])
    _write(tmp_path / "dev.tsv", FILES["mrpc"][0])
    config = DataConfig(glue="mrpc", folder=tmp_path, validation=0.0, calibration=0.0)
    assert load_splits(config).metrics == ("f1", "accuracy")
    other = config.model_copy(update={"metric": "accuracy"})
    assert load_splits(other).metrics == ("accuracy", "f1")
    assert FORMATS["cola"].metrics == ("matthews",)
