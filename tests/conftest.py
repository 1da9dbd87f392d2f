"""Shared parts of the tests: tiny backbones of every family, toy data, trained and exported."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import HealthCheck, settings
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from multi_exit.bundle import Bundle

pytest_plugins = ["tests.prometheus_fixture"]

settings.register_profile(
    "patamar", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("patamar")

WORDS = {
    "weather": "rain sun wind cloud storm snow warm cold sky mist".split(),
    "music": "song drum guitar choir tune band voice piano melody bass".split(),
    "food": "bread soup apple cheese pepper rice cake tea salad bean".split(),
}
FILLERS = "the a very some of and with this that today near my your".split()

MakeBackbone = Callable[[str], Path]


def toy_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts of filler words and words of their label; the hard ones hold another label's too."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        label = rng.choice(sorted(WORDS))
        words = rng.choices(FILLERS, k=rng.randint(1, 14))
        others = rng.choice((0, 0, 1, 2))
        distractor = rng.choice([name for name in sorted(WORDS) if name != label])
        for name, times in ((label, others + rng.choice((1, 1, 2))), (distractor, others)):
            for _ in range(times):
                words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS[name]))
        rows.append((" ".join(words), label))
    return rows


def write_csv(path: Path, rows: list[tuple[str, str]]) -> Path:
    """A CSV file with the columns text and label."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        writer.writerows(rows)
    return path


def _corpus() -> list[str]:
    return [text for text, _ in toy_rows(400, seed=1)]


def wordpiece_tokenizer() -> Tokenizer:
    """A BERT-like tokenizer of the toy words."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]"))
    )
    return tokenizer


def byte_level_tokenizer() -> Tokenizer:
    """A RoBERTa-like tokenizer: byte-level, padding id 1, no token types."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return tokenizer


def _tiny_configuration(family: str, vocabulary: int) -> transformers.PretrainedConfig:
    size = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    if family == "bert":
        return transformers.BertConfig(**size, max_position_embeddings=64)
    if family in ("roberta", "xlm-roberta"):
        kind = transformers.RobertaConfig if family == "roberta" else transformers.XLMRobertaConfig
        return kind(**size, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1)
    if family == "electra":
        return transformers.ElectraConfig(**size, embedding_size=16, max_position_embeddings=64)
    if family == "mpnet":
        return transformers.MPNetConfig(**size, max_position_embeddings=66, pad_token_id=1)
    return transformers.DistilBertConfig(
        vocab_size=vocabulary,
        dim=32,
        n_layers=3,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=64,
    )


FAMILIES = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "mpnet")


@pytest.fixture(scope="session")
def make_backbone(tmp_path_factory: pytest.TempPathFactory) -> MakeBackbone:
    """Folder of a tiny random backbone of a family, with its tokenizer, as a hub would give it."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family in made:
            return made[family]
        byte_level = family in ("roberta", "xlm-roberta", "mpnet")
        tokenizer = byte_level_tokenizer() if byte_level else wordpiece_tokenizer()
        torch.manual_seed(0)
        config = _tiny_configuration(family, tokenizer.get_vocab_size())
        folder = tmp_path_factory.mktemp(f"backbone-{family}")
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        pad, separator = ("<pad>", "</s>") if byte_level else ("[PAD]", "[SEP]")
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token=pad, sep_token=separator
        ).save_pretrained(folder)
        made[family] = folder
        return folder

    return make


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with train.csv and test.csv of three easy labels."""
    folder = tmp_path_factory.mktemp("toy-data")
    write_csv(folder / "train.csv", toy_rows(900, seed=2))
    write_csv(folder / "test.csv", toy_rows(300, seed=3))
    return folder


@pytest.fixture(scope="session")
def toy_checkpoint(
    make_backbone: MakeBackbone, toy_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A tiny BERT trained for real on the toy data: it learns, and exits vary by text."""
    from training.config import TrainingConfig
    from training.train import train

    config = TrainingConfig.model_validate(
        {
            "data": {
                "train": toy_data / "train.csv",
                "test": toy_data / "test.csv",
                "validation": 0.1,
                "calibration": 0.3,
            },
            "model": {"backbone": str(make_backbone("bert")), "max_length": 64},
            "optimiser": {"backbone_learning_rate": 1e-3, "exit_learning_rate": 1e-3},
            "run": {"epochs": 6, "batch_size": 16, "precision": "fp32", "threads": 1},
        }
    )
    output = tmp_path_factory.mktemp("toy-training") / "checkpoint"
    train(config, output)
    return output


@pytest.fixture(scope="session")
def toy_bundle(toy_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The toy checkpoint, exported, verified, calibrated and sealed."""
    from export.build import export_bundle
    from export.config import ExportConfig

    target = tmp_path_factory.mktemp("toy-bundle") / "bundle"
    return export_bundle(toy_checkpoint, target, ExportConfig(name="toy"))
