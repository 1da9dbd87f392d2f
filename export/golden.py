"""Golden examples: texts of several lengths and what every exit answered when sealing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from multi_exit.bundle import BundleManifest, GoldenExample
from multi_exit.offline import every_exit
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextEncoder, TextInput

# Characters a token takes at most on average, so that a repeated text surely fills the model.
_CHARACTERS_A_TOKEN = 12


def golden_examples(
    runner: StageRunner,
    manifest: BundleManifest,
    encoder: TextEncoder,
    texts: Sequence[TextInput],
) -> tuple[GoldenExample, ...]:
    """The given texts, one of a single word, and ones of about 16, 128 and the most tokens.

    Masks, positions and half precision go wrong at lengths that everyday texts do not reach.
    """
    chosen = [*texts, *(_of_length(texts[0], tokens, manifest) for tokens in (1, 16, 128, None))]
    outputs = every_exit(runner, manifest, [encoder.encode(text) for text in chosen])
    return tuple(
        GoldenExample(
            text=text.text,
            text_pair=text.text_pair,
            labels=tuple(manifest.labels[label] for label in outputs.labels[row]),
            entropies=tuple(float(value) for value in outputs.entropy[row]),
            logits=tuple(
                tuple(float(v) for v in exit_logits) for exit_logits in outputs.logits[row]
            ),
        )
        for row, text in enumerate(chosen)
    )


def _of_length(text: TextInput, tokens: int | None, manifest: BundleManifest) -> TextInput:
    words = text.text.split() or [text.text]
    if tokens is None:
        wanted = manifest.max_length * _CHARACTERS_A_TOKEN // max(1, len(text.text)) + 1
        return TextInput(" ".join([text.text] * wanted), text.text_pair)
    repeated = [str(word) for word in np.resize(words, min(tokens, manifest.max_length))]
    return TextInput(" ".join(repeated), text.text_pair)
