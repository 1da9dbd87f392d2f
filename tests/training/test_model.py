"""The multi-exit model: its exits, and that its stages add up to its forward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from multi_exit.errors import ConfigurationError
from tests.conftest import FAMILIES, MakeBackbone
from tests.training.models import random_tokens, small_model
from training.backbone import load_backbone
from training.model import MultiExitModel
from training.pooling import PoolingName


def _tokens(model: MultiExitModel) -> dict[str, Tensor]:
    config = model.backbone.config
    return random_tokens(4, 10, vocabulary=config.vocab_size, pad=model.pad_token_id)


@torch.no_grad()
@pytest.mark.parametrize(
    ("exits", "pooling"), [((1, 2, 3), "mean"), ((2, 3), "cls"), ((3,), "attention")]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_stage_by_stage_equals_the_forward(
    make_backbone: MakeBackbone, family: str, exits: Sequence[int], pooling: PoolingName
) -> None:
    model = small_model(make_backbone(family), exits=exits, pooling=pooling)
    tokens = _tokens(model)
    whole = model(**tokens)
    assert whole.representations.shape == (len(exits), 4, 32)
    assert whole.label_embeddings.shape == (len(exits), 3, 32)
    assert whole.logits.shape == (len(exits), 4, 3)
    hidden = model.embed(**tokens)
    first = 1
    for index, last in enumerate(exits):
        context = model.context(hidden, tokens["attention_mask"])
        hidden = model.run_layers(first, last, hidden, context)
        representation, logits = model.exit_head(index, hidden, tokens["attention_mask"])
        torch.testing.assert_close(representation, whole.representations[index])
        torch.testing.assert_close(logits, whole.logits[index])
        first = last + 1


def test_representations_lie_after_the_tanh_and_before_the_classifier(tiny_bert: Path) -> None:
    model = small_model(tiny_bert)
    outputs = model(**_tokens(model))
    assert outputs.representations.abs().max() <= 1.0
    for index, head in enumerate(model.heads):
        classifier = head.get_submodule("classifier")
        torch.testing.assert_close(
            classifier(outputs.representations[index]), outputs.logits[index]
        )


def test_logits_are_made_of_the_very_tensors_that_are_returned(tiny_bert: Path) -> None:
    model = small_model(tiny_bert)
    outputs = model(**_tokens(model))
    at = [outputs.representations, outputs.label_embeddings]
    for gradient in torch.autograd.grad(outputs.logits.sum(), at):
        assert (gradient.abs().amax(dim=(1, 2)) > 0).all()


def test_dropout_acts_in_training_only_and_not_on_representations(tiny_bert: Path) -> None:
    backbone = load_backbone(str(tiny_bert))
    model = MultiExitModel(backbone, exits=(1, 3), labels=3, pooling="mean", dropout=0.5)
    tokens = _tokens(model)
    model.eval()
    torch.testing.assert_close(model(**tokens).logits, model(**tokens).logits)
    model.train()
    model.backbone.eval()
    first, second = model(**tokens), model(**tokens)
    torch.testing.assert_close(first.representations, second.representations)
    assert not torch.allclose(first.logits, second.logits)


@pytest.mark.parametrize("exits", [(), (1, 2), (2, 1, 3), (1, 1, 3), (0, 3), (1, 4)])
def test_exits_must_ascend_to_the_last_layer(tiny_bert: Path, exits: Sequence[int]) -> None:
    with pytest.raises(
        ConfigurationError, match="exits must ascend and end with the last layer, 3"
    ):
        small_model(tiny_bert, exits=exits)


@pytest.mark.parametrize(
    ("family", "types"),
    [
        ("bert", True),
        ("electra", True),
        ("roberta", False),
        ("mpnet", False),
        ("distilbert", False),
    ],
)
def test_token_types_are_an_input_only_where_they_mean_something(
    make_backbone: MakeBackbone, family: str, types: bool
) -> None:
    names = small_model(make_backbone(family)).input_names
    assert ("token_type_ids" in names) is types


def test_bf16_is_close_to_fp32(tiny_bert: Path) -> None:
    model = small_model(tiny_bert)
    tokens = _tokens(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(**tokens)
    torch.testing.assert_close(half.logits.float(), model(**tokens).logits, atol=0.05, rtol=0.05)
