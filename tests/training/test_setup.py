"""What a run is made of, and what is refused before its first step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from multi_exit.errors import ConfigurationError
from tests.conftest import MakeBackbone
from tests.training.models import small_config
from training.setup import set_up


def test_the_seed_decides_the_fresh_exits_and_not_what_came_before(
    few_texts: Path, tiny_bert: Path
) -> None:
    config = small_config(few_texts, tiny_bert)
    torch.manual_seed(1)
    first = set_up(config).model.state_dict()
    torch.manual_seed(2)
    torch.testing.assert_close(set_up(config).model.state_dict(), first, rtol=0, atol=0)
    other = set_up(small_config(few_texts, tiny_bert, run={"seed": 8})).model.state_dict()
    name = "heads.0.classifier.weight"
    assert not torch.equal(other[name], first[name])


def test_every_layer_has_an_exit_where_none_are_chosen(few_texts: Path, tiny_bert: Path) -> None:
    assert set_up(small_config(few_texts, tiny_bert)).model.exits == (1, 2, 3)
    kept = small_config(few_texts, tiny_bert, model={"layers": 2})
    assert set_up(kept).model.exits == (1, 2)
    chosen = small_config(few_texts, tiny_bert, model={"exits": [1, 3]})
    assert set_up(chosen).model.exits == (1, 3)


def test_exits_that_do_not_fit_the_layers_are_refused(few_texts: Path, tiny_bert: Path) -> None:
    config = small_config(few_texts, tiny_bert, model={"layers": 2, "exits": [1, 3]})
    with pytest.raises(ConfigurationError, match="end with the last layer, 2"):
        set_up(config)


def test_steps_are_those_of_all_epochs(few_texts: Path, tiny_bert: Path) -> None:
    run = set_up(small_config(few_texts, tiny_bert, run={"epochs": 3, "batch_size": 10}))
    assert len(run.train) == 56
    assert (run.steps_an_epoch, run.steps) == (6, 18)


def test_texts_are_encoded_as_the_service_will(few_texts: Path, tiny_bert: Path) -> None:
    run = set_up(small_config(few_texts, tiny_bert, model={"max_length": 8}))
    assert max(map(len, run.train.texts)) == 8
    for text, label, example in zip(
        run.train.texts, run.train.labels, run.splits.train, strict=True
    ):
        assert run.tokenizer.id_to_token(int(text.token_ids[0])) == "[CLS]"
        assert run.splits.labels[label] == example.label


def test_a_longest_text_of_a_padding_offset_model_is_known(
    few_texts: Path, make_backbone: MakeBackbone
) -> None:
    folder = make_backbone("roberta")
    set_up(small_config(few_texts, folder, model={"max_length": 64}))
    with pytest.raises(ConfigurationError, match="max_length = 65, but the backbone has positions"):
        set_up(small_config(few_texts, folder, model={"max_length": 65}))


def test_a_tokenizer_of_another_backbone_is_refused(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / "mixed")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {f"extra{number}": len(vocabulary) + number for number in range(3)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigurationError, match="do not belong together"):
        set_up(small_config(few_texts, folder))


def test_exit_weights_that_do_not_fit_the_exits_are_refused(
    few_texts: Path, tiny_bert: Path
) -> None:
    config = small_config(few_texts, tiny_bert, objective={"exit_weights": [1.0, 2.0]})
    with pytest.raises(ConfigurationError, match="2 exit_weights for 3 exits"):
        set_up(config)
