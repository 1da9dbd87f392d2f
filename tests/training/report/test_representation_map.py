"""The map of representations: drawn from the model's own, the same every time, and readable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from multi_exit.text_encoder import TextEncoder
from tests.training.report.examples import assert_readable
from training.checkpoint import load_checkpoint
from training.evaluate import encode_split
from training.provenance import splits_of
from training.report.representation_map import (
    RepresentationMap,
    map_figure,
    map_representations,
    map_table,
    representations_at,
    sample_rows,
)


def test_a_sample_is_drawn_without_replacement_and_the_same_every_time() -> None:
    assert sample_rows(5, largest=9).tolist() == [0, 1, 2, 3, 4]
    rows = sample_rows(500, largest=60)
    assert len(set(rows.tolist())) == 60
    assert rows.tolist() == sorted(rows.tolist()) == sample_rows(500, largest=60).tolist()


def test_representations_are_those_of_each_text_alone(toy_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(toy_checkpoint)
    examples = splits_of(checkpoint.manifest).test[:12]
    encoder = TextEncoder.from_file(checkpoint.tokenizer_file, max_length=64)
    split = encode_split(encoder, examples, checkpoint.manifest.labels, "test")
    rows = [7, 0, 3, 11]
    found, embeddings = representations_at(
        checkpoint.model, split, rows, 1, torch.device("cpu"), batch_size=3
    )
    for place, row in enumerate(rows):
        tokens = torch.from_numpy(split.texts[row].token_ids)[None]
        with torch.no_grad():
            alone = checkpoint.model(tokens, torch.ones_like(tokens))
        np.testing.assert_allclose(found[place], alone.representations[1, 0], atol=1e-5)
        np.testing.assert_array_equal(embeddings, alone.label_embeddings[1])


def clusters(labels: int, texts: int) -> RepresentationMap:
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(labels, 16))
    truth = rng.integers(labels, size=texts)
    return map_representations(
        np.tanh(embeddings[truth] + rng.normal(0, 0.2, (texts, 16))), 3 * embeddings, truth
    )


def test_a_star_stands_in_the_cluster_of_its_label() -> None:
    found = clusters(4, 120)
    for label in range(4):
        own = found.texts[found.labels == label].mean(axis=0)
        distances = np.linalg.norm(found.label_embeddings - own, axis=1)
        assert distances.argmin() == label, "length does not count, direction does"
    np.testing.assert_array_equal(found.texts, clusters(4, 120).texts)


def test_few_texts_have_a_map() -> None:
    assert clusters(2, 2).texts.shape == (2, 2)


@pytest.mark.parametrize("labels", [2, 7, 30])
def test_no_words_overlap_and_seven_labels_are_coloured(labels: int) -> None:
    found = clusters(labels, 200)
    names = [f"_topic of a rather long name {index}" for index in range(labels)]
    figure = map_figure(found, names, exit_layer=3, all_texts=4000)
    assert_readable(figure)
    (axes,) = figure.axes
    assert "200 of 4,000 texts" in axes.get_title(loc="left")
    assert ("7 most frequent" in axes.get_title(loc="left")) == (labels > 7)
    legend = axes.get_legend()
    assert legend is not None
    shown = [text.get_text() for text in legend.get_texts()]
    assert len(shown) == min(labels, 7) + (labels > 7)
    assert (shown[-1] == "23 other labels") == (labels > 7)
    points = [c for c in axes.collections if isinstance(c, PathCollection)]
    assert sum(len(np.asarray(c.get_offsets())) for c in points) == 200 + labels
    colours = [to_hex(c.get_facecolor()[0]) for c in points[::2]]
    assert len(set(colours)) == len(shown), "no colour twice"
    rows = map_table(found, names).rows
    assert sum(row[0] == "text" for row in rows) == 200
    assert [row[1] for row in rows if row[0] == "label embedding"] == names
