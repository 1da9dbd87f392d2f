"""A map of the representations at one exit, with the label embeddings drawn in as stars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from training.batches import EncodedSplit, make_batch
from training.model import MultiExitModel
from training.report.numbers import Table
from training.report.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MARKERS,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    VERMILION,
    drawing,
    headline,
    readable,
)

LARGEST_SAMPLE = 1000
_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, INK)
# No colour twice: two stars of one colour could not be told apart.
_COLOURED = len(_COLOURS)


@dataclass(frozen=True, slots=True, eq=False)
class RepresentationMap:
    """Places on a plane without unit: texts [texts, 2], label_embeddings [K, 2].

    labels [texts]: index of each text's true label.
    """

    texts: NDArray[np.float64]
    labels: NDArray[np.int64]
    label_embeddings: NDArray[np.float64]


def sample_rows(texts: int, largest: int = LARGEST_SAMPLE, seed: int = 0) -> NDArray[np.int64]:
    """Row numbers of the texts to draw, ascending: all, or as many drawn without replacement."""
    if texts <= largest:
        return np.arange(texts)
    return np.sort(np.random.default_rng(seed).choice(texts, largest, replace=False))


@torch.inference_mode()
def representations_at(
    model: MultiExitModel,
    split: EncodedSplit,
    rows: Sequence[int],
    exit_index: int,
    device: torch.device,
    *,
    batch_size: int = 64,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Representations [rows, hidden] at one exit and its label embeddings [K, hidden].

    exit_index counts from 0. In fp32; the model must be on the device and in evaluation mode.
    """
    by_length = sorted(range(len(rows)), key=lambda place: len(split.texts[rows[place]]))
    found = np.empty((len(rows), model.hidden_size), dtype=np.float32)
    for start in range(0, len(rows), batch_size):
        places = by_length[start : start + batch_size]
        batch = make_batch(split, [rows[place] for place in places], model.pad_token_id, device)
        outputs = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        found[places] = outputs.representations[exit_index].float().cpu().numpy()
        embeddings = outputs.label_embeddings[exit_index].float().cpu().numpy()
    return found, embeddings


def map_representations(
    representations: NDArray[np.floating],
    label_embeddings: NDArray[np.floating],
    labels: NDArray[np.int64],
    seed: int = 0,
) -> RepresentationMap:
    """t-SNE of representations [texts, hidden] and label embeddings [K, hidden] together.

    All are brought to unit length first, because contrastive learning compares them by cosine.
    Distances between far clusters mean nothing on such a map. Source: van der Maaten and Hinton
    2008. The same input and seed give the same map on the same machine.
    """
    both = np.concatenate([representations, label_embeddings]).astype(np.float64)
    lengths = np.linalg.norm(both, axis=1, keepdims=True)
    unit = both / np.where(lengths > 0, lengths, 1.0)
    perplexity = min(30.0, (len(unit) - 1) / 3)
    places = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(unit)
    places = places.astype(np.float64)
    texts = len(representations)
    return RepresentationMap(places[:texts], labels, places[texts:])


def map_table(found: RepresentationMap, names: Sequence[str]) -> Table:
    """Every place on the map: kind (text or label embedding), label, x, y."""
    texts = [
        ("text", names[label], float(x), float(y))
        for label, (x, y) in zip(found.labels, found.texts, strict=True)
    ]
    stars = [
        ("label embedding", name, float(x), float(y))
        for name, (x, y) in zip(names, found.label_embeddings, strict=True)
    ]
    return Table(("kind", "label", "x", "y"), (*texts, *stars))


@drawing
def map_figure(
    found: RepresentationMap, names: Sequence[str], *, exit_layer: int, all_texts: int
) -> Figure:
    """Dots are texts, coloured by their true label; stars are label embeddings.

    Of more than seven labels the most frequent seven of the map are coloured, the others grey.
    all_texts: size of the split that the map's texts were drawn from.
    """
    counts = np.bincount(found.labels, minlength=len(names))
    frequent = np.argsort(-counts, kind="stable")[:_COLOURED]
    figure = Figure(figsize=(7.6, 5.2), layout="constrained")
    axes = figure.subplots()
    others = ~np.isin(np.arange(len(names)), frequent)
    for place, index in enumerate(frequent):
        own = np.arange(len(names)) == index
        colour = _COLOURS[place]
        name = readable(names[index])
        _scatter(axes, found, own, colour=colour, marker=MARKERS[place], label=name)
    if others.any():
        name = f"{int(others.sum())} other labels"
        _scatter(axes, found, others, colour=GREY, marker=".", label=name)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("t-SNE, first axis (no unit)")
    axes.set_ylabel("t-SNE, second axis (no unit)")
    drawn, of = len(found.texts), f" of {all_texts:,}" if len(found.texts) < all_texts else ""
    title = f"{drawn:,}{of} texts; stars are label embeddings"
    if others.any():
        title += f"\nof {len(names)} labels the {_COLOURED} most frequent are coloured"
    axes.set_title(title)
    headline(figure, f"Representations at exit {exit_layer} (t-SNE of unit vectors)")
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1, 1),
        title="True label",
        alignment="left",
        markerscale=1.5,
    )
    return figure


def _scatter(
    axes: Axes,
    found: RepresentationMap,
    chosen: NDArray[np.bool_],
    *,
    colour: str,
    marker: str,
    label: str,
) -> None:
    """Texts and stars of the chosen labels, bool [K]; the grey rest smaller and behind."""
    grey = colour == GREY
    dots, stars = found.texts[chosen[found.labels]], found.label_embeddings[chosen]
    axes.scatter(
        dots[:, 0],
        dots[:, 1],
        s=13,
        c=colour,
        marker=marker,
        alpha=0.45 if grey else 0.75,
        lw=0,
        label=label,
        zorder=1 if grey else 2,
    )
    size, edge = (60, PAPER) if grey else (210, INK)
    axes.scatter(
        stars[:, 0], stars[:, 1], s=size, c=colour, marker="*", edgecolors=edge, lw=0.8, zorder=3
    )
