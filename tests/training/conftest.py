"""Parts of the training tests: a tiny backbone, and few labelled texts to train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MakeBackbone, toy_rows, write_csv


@pytest.fixture(scope="session")
def tiny_bert(make_backbone: MakeBackbone) -> Path:
    """Folder of a random BERT with 3 layers of 32, and its tokenizer."""
    return make_backbone("bert")


@pytest.fixture(scope="session")
def few_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file of 80 texts with three labels."""
    return write_csv(tmp_path_factory.mktemp("few-texts") / "train.csv", toy_rows(80, seed=5))
