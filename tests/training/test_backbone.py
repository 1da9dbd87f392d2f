"""Every family run layer by layer equals its own forward; what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

from multi_exit.errors import ConfigurationError
from tests.conftest import FAMILIES, MakeBackbone
from tests.training.models import random_tokens
from training.backbone import Backbone, load_backbone, take_apart

SIZE = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "pad_token_id": 0,
}


def _layer_by_layer(
    backbone: Backbone, tokens: dict[str, Tensor], token_type_ids: Tensor | None = None
) -> list[Tensor]:
    states = [backbone.embed(tokens["input_ids"], token_type_ids)]
    context = backbone.context(states[0], tokens["attention_mask"])
    for index in range(len(backbone.layers)):
        states.append(backbone.run_layer(index, states[-1], context))
    return states


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_family_run_layer_by_layer_equals_its_own_forward(
    make_backbone: MakeBackbone, family: str
) -> None:
    folder = make_backbone(family)
    own = transformers.AutoModel.from_pretrained(folder).eval()
    backbone = load_backbone(str(folder)).eval()
    pad = own.config.pad_token_id
    tokens = random_tokens(5, 12, vocabulary=own.config.vocab_size, pad=pad)
    expected = own(**tokens, output_hidden_states=True).hidden_states
    real = tokens["attention_mask"].bool()
    found = _layer_by_layer(backbone, tokens)
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours[real], theirs[real], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_padding_does_not_change_a_text(make_backbone: MakeBackbone, family: str) -> None:
    # RoBERTa counts positions from the padding id, so they go wrong first where padding does.
    backbone = load_backbone(str(make_backbone(family))).eval()
    pad = backbone.config.pad_token_id
    tokens = random_tokens(3, 12, vocabulary=backbone.config.vocab_size, pad=pad)
    together = _layer_by_layer(backbone, tokens)[-1]
    for row in range(3):
        length = int(tokens["attention_mask"][row].sum())
        alone = {name: values[row : row + 1, :length] for name, values in tokens.items()}
        torch.testing.assert_close(
            together[row, :length], _layer_by_layer(backbone, alone)[-1][0], atol=2e-6, rtol=1e-5
        )


@torch.no_grad()
def test_token_types_are_those_of_the_model(tiny_bert: Path) -> None:
    own = transformers.AutoModel.from_pretrained(tiny_bert).eval()
    backbone = load_backbone(str(tiny_bert)).eval()
    tokens = random_tokens(2, 8, vocabulary=own.config.vocab_size, pad=0)
    types = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 0, 0]])
    real = tokens["attention_mask"].bool()
    expected = own(**tokens, token_type_ids=types).last_hidden_state
    found = _layer_by_layer(backbone, tokens, types)[-1]
    torch.testing.assert_close(found[real], expected[real], atol=2e-6, rtol=1e-5)
    assert not torch.allclose(found[real], _layer_by_layer(backbone, tokens)[-1][real])


def test_layers_are_traced_with_any_batch_and_length(make_backbone: MakeBackbone) -> None:
    # MPNet, whose relative positions depend on the length.
    backbone = load_backbone(str(make_backbone("mpnet"))).eval()

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            tokens = {"input_ids": input_ids, "attention_mask": attention_mask}
            return _layer_by_layer(self.backbone, tokens)[-1]

    whole = Whole()
    config = backbone.config
    example = random_tokens(3, 7, vocabulary=config.vocab_size, pad=config.pad_token_id)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(
        whole, tuple(example.values()), dynamic_shapes=(axes, axes)
    ).module()
    for rows, length in ((1, 3), (5, 31)):
        other = random_tokens(rows, length, vocabulary=config.vocab_size, pad=config.pad_token_id)
        with torch.no_grad():
            torch.testing.assert_close(program(*other.values()), whole(*other.values()))


def test_layers_keeps_the_first(tiny_bert: Path) -> None:
    whole, first = load_backbone(str(tiny_bert)), load_backbone(str(tiny_bert), layers=2)
    assert len(first.layers) == first.config.num_hidden_layers == 2
    torch.testing.assert_close(first.layers.state_dict(), whole.layers[:2].state_dict())


def test_layers_beyond_the_last_are_refused(tiny_bert: Path) -> None:
    with pytest.raises(ConfigurationError, match="layers = 4, but the backbone has only 3"):
        load_backbone(str(tiny_bert), layers=4)


def test_repeated_layers_start_alike_and_are_trained_apart(tiny_bert: Path) -> None:
    once = load_backbone(str(tiny_bert), layers=2)
    twice = load_backbone(str(tiny_bert), layers=2, repeat_layers=2)
    assert len(twice.layers) == twice.config.num_hidden_layers == 4
    for position, source in enumerate((0, 0, 1, 1)):
        torch.testing.assert_close(
            twice.layers[position].state_dict(), once.layers[source].state_dict()
        )
    # Of the state, since parameters() lists what is shared only once.
    pointers = [weight.data_ptr() for weight in twice.layers.state_dict().values()]
    assert len(set(pointers)) == len(pointers)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.AlbertConfig(**SIZE), "has no embeddings and stack of layers"),
        (transformers.DebertaV2Config(**SIZE), "does more than embeddings and layers"),
        (transformers.RobertaPreLayerNormConfig(**SIZE), "does more than embeddings and layers"),
        (transformers.RoFormerConfig(**SIZE), "does more than embeddings and layers"),
        (transformers.BertConfig(**SIZE, is_decoder=True), "does more than embeddings and layers"),
        (transformers.ConvBertConfig(**SIZE), "lets padding change a text"),
        (transformers.FNetConfig(**SIZE), "cannot be run as embeddings and layers"),
        (transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=99), "no embeddings"),
    ],
)
def test_another_architecture_is_refused_by_name(
    config: transformers.PretrainedConfig, reason: str
) -> None:
    torch.manual_seed(0)
    encoder = transformers.AutoModel.from_config(config, attn_implementation="eager")
    with pytest.raises(ConfigurationError, match=reason) as caught:
        take_apart(encoder)
    assert type(encoder).__name__ in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_text_is_what_the_positions_hold(
    make_backbone: MakeBackbone, family: str
) -> None:
    backbone = load_backbone(str(make_backbone(family))).eval()
    longest = backbone.longest_text
    assert longest == 64
    pad = backbone.config.pad_token_id
    tokens = random_tokens(1, longest, vocabulary=backbone.config.vocab_size, pad=pad)
    _layer_by_layer(backbone, tokens)
    longer = random_tokens(1, longest + 1, vocabulary=backbone.config.vocab_size, pad=pad)
    with pytest.raises((IndexError, RuntimeError)):
        _layer_by_layer(backbone, longer)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot load the backbone"):
        load_backbone(str(tmp_path))


def test_pickled_weights_are_not_loaded(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny_bert / "config.json").read_bytes())
    weights = transformers.AutoModel.from_pretrained(tiny_bert).state_dict()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigurationError, match=r"safetensors"):
        load_backbone(str(tmp_path))


def test_code_that_comes_with_a_model_is_not_run(tiny_bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "foreign"
    config["auto_map"] = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ConfigurationError, match="cannot load the backbone"):
        load_backbone(str(folder))
    assert not (tmp_path / "ran").exists()


@torch.no_grad()
def test_a_model_with_one_token_type_takes_pairs(make_backbone: MakeBackbone) -> None:
    # RoBERTa's table of types has one row: the second side of a pair has no type to look up.
    backbone = load_backbone(str(make_backbone("roberta"))).eval()
    tokens = random_tokens(2, 8, vocabulary=backbone.config.vocab_size, pad=1)
    types = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 0, 0]])
    torch.testing.assert_close(
        _layer_by_layer(backbone, tokens, types)[-1], _layer_by_layer(backbone, tokens)[-1]
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_probe_leaves_the_mode_of_the_encoder_alone(tiny_bert: Path, training: bool) -> None:
    encoder = transformers.AutoModel.from_pretrained(tiny_bert, attn_implementation="eager")
    encoder.train(training)
    backbone = take_apart(encoder)
    assert encoder.training is training
    assert all(layer.training is training for layer in backbone.layers)
