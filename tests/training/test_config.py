"""Configurations: what is read, and that whatever is wrong is named with its file and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multi_exit.errors import ConfigurationError
from training.config import TrainingConfig, load_config

MINIMAL = """
[data]
train = "texts.csv"

[model]
backbone = "bert-base-uncased"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "training.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_minimal_configuration_has_defaults_for_the_rest(tmp_path: Path) -> None:
    config = load_config(_write(tmp_path, MINIMAL))
    assert config.data.train == tmp_path / "texts.csv"
    assert config.model.backbone == "bert-base-uncased"
    assert (config.objective.method, config.objective.gate) == ("acl-cl", "representation")
    assert (config.objective.temperature, config.objective.contrastive_weight) == (0.1, 0.5)
    assert config.run.epochs == 4


def test_paths_start_at_the_configuration(tmp_path: Path) -> None:
    text = MINIMAL.replace("texts.csv", "data/texts.csv").replace("bert-base-uncased", "./model")
    text = text.replace("[model]", 'calibration = "kept.csv"\nlabels = ["b", "a"]\n[model]')
    config = load_config(_write(tmp_path, text))
    assert config.data.train == tmp_path / "data" / "texts.csv"
    assert config.data.calibration == tmp_path / "kept.csv"
    assert config.data.labels == ("b", "a")
    assert config.model.backbone == str(tmp_path / "model")


@pytest.mark.parametrize("key", ["validation", "calibration", "test", "labels"])
def test_every_named_file_starts_at_the_configuration(tmp_path: Path, key: str) -> None:
    text = MINIMAL.replace("[model]", f'{key} = "../kept.csv"\n[model]')
    data = load_config(_write(tmp_path, text)).data
    assert getattr(data, key) == tmp_path / ".." / "kept.csv"


def test_a_glue_folder_starts_at_the_configuration(tmp_path: Path) -> None:
    text = MINIMAL.replace('train = "texts.csv"', 'glue = "rte"\nfolder = "RTE"')
    assert load_config(_write(tmp_path, text)).data.folder == tmp_path / "RTE"


def test_an_absolute_path_stays(tmp_path: Path) -> None:
    text = MINIMAL.replace("texts.csv", "/data/texts.csv")
    assert load_config(_write(tmp_path, text)).data.train == Path("/data/texts.csv")


def test_a_configuration_cannot_be_changed(tmp_path: Path) -> None:
    config = load_config(_write(tmp_path, MINIMAL))
    with pytest.raises(ValueError, match="frozen"):
        config.run.epochs = 5  # type: ignore[misc]


def test_with_a_named_data_set_a_name_without_ending_is_a_split(tmp_path: Path) -> None:
    text = MINIMAL.replace('train = "texts.csv"', 'dataset = "some/name"\ntest = "test"')
    text = text.replace("[model]", 'validation = "kept.csv"\n[model]')
    data = load_config(_write(tmp_path, text)).data
    assert data.test == Path("test")
    assert data.validation == tmp_path / "kept.csv"
    assert data.files() == ()


def test_a_configuration_survives_json(tmp_path: Path) -> None:
    text = MINIMAL + '\n[objective]\nmethod = "ce"\nexit_weights = [1, 2.5]\n'
    config = load_config(_write(tmp_path, text))
    assert TrainingConfig.model_validate(json.loads(config.model_dump_json())) == config


@pytest.mark.parametrize(
    ("section", "line", "key"),
    [
        ("data", "trian = 1", "data.trian"),
        ("data", "validation = 1.0", "data.validation"),
        ("data", "validation = true", "data.validation"),
        ("data", "calibration = -0.1", "data.calibration"),
        ("data", 'metric = "precision"', "data.metric"),
        ("model", "layers = 0", "model.layers"),
        ("model", 'layers = "3"', "model.layers"),
        ("model", "exits = [1, 2.5]", "model.exits.1"),
        ("model", 'pooling = "max"', "model.pooling"),
        ("model", 'backbone_sha256 = "53AA"', "model.backbone_sha256"),
        ("model", "dropout = 1.0", "model.dropout"),
        ("objective", 'method = "acl"', "objective.method"),
        ("objective", "temperature = 0.0", "objective.temperature"),
        ("objective", "temperature = nan", "objective.temperature"),
        ("objective", "contrastive_weight = inf", "objective.contrastive_weight"),
        ("objective", "exit_weights = [1.0, -1.0]", "objective.exit_weights.1"),
        ("objective", "largest_angle = 181.0", "objective.largest_angle"),
        ("optimiser", "warmup_share = 1.0", "optimiser.warmup_share"),
        ("run", "epochs = true", "run.epochs"),
        ("run", "epochs = 2.5", "run.epochs"),
        ("run", "seed = -1", "run.seed"),
        ("run", 'precision = "int8"', "run.precision"),
        ("runs", "epochs = 1", "runs"),
    ],
)
def test_a_wrong_value_is_named_by_file_and_key(
    tmp_path: Path, section: str, line: str, key: str
) -> None:
    heading = f"[{section}]\n"
    text = MINIMAL if heading in MINIMAL else MINIMAL + heading
    path = _write(tmp_path, text.replace(heading, heading + line + "\n"))
    with pytest.raises(ConfigurationError) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "exactly one of train, glue and dataset"),
        ('train = "a.csv"\ndataset = "b"', "exactly one of train, glue and dataset"),
        ('glue = "rte"', "glue needs folder"),
        ('glue = "rte"\nfolder = "x"\ndataset = "b"', "either glue or dataset"),
        ('train = "a.csv"\nfolder = "x"', "folder goes with glue"),
        ('train = "a.csv"\ndataset_configuration = "b"', "dataset_configuration goes with"),
        ('train = "a.csv"\ncalibration = 0.5\ntest = 0.4', "less than a tenth"),
        ('train = "a.csv"\ncalibration = "a.csv"', "calibration and train are the same file"),
    ],
)
def test_sources_that_contradict_each_other_are_refused(
    tmp_path: Path, data: str, reason: str
) -> None:
    text = MINIMAL.replace('train = "texts.csv"', data)
    with pytest.raises(ConfigurationError, match=reason):
        load_config(_write(tmp_path, text))


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ('[objective]\nmethod = "acl-grad"\ngate = "none"', "acl-grad is acl-embed with a gate"),
        ("[objective]\nexit_weights = [0, 0]", "must be above 0"),
        ("exits = [1, 2]\n[objective]\nexit_weights = [1]", "1 exit_weights for 2 exits"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, rest: str, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        load_config(_write(tmp_path, MINIMAL + rest))


def test_early_stopping_needs_validation_texts(tmp_path: Path) -> None:
    text = MINIMAL.replace("[model]", "validation = 0\n[model]")
    load_config(_write(tmp_path, text))
    with pytest.raises(ConfigurationError, match=r"needs data\.validation"):
        load_config(_write(tmp_path, text + "[run]\nearly_stopping_epochs = 1"))


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*nowhere\.toml"):
        load_config(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigurationError, match=r"training\.toml is not valid TOML"):
        load_config(_write(tmp_path, "[data"))
