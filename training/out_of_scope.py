"""Texts that belong to no label: how well each exit's measures of doubt find them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multi_exit.confidence import maximum_doubt, normalised_entropy
from multi_exit.errors import ConfigurationError, DataError, TextError
from multi_exit.outcome import ExitOutputs
from multi_exit.text_encoder import TextEncoder, TextInput
from training.batches import EncodedSplit
from training.checkpoint import load_checkpoint
from training.data.tables import read_texts
from training.detection import DetectionDraws, Estimate, Scores, detection_draws, estimate
from training.evaluate import encode_split, run_every_exit
from training.precision import choose_device
from training.provenance import splits_of

# Each is compared with those before it.
MEASURES = ("maximum", "entropy", "label_distance")
RECALL = 0.95
_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfScopeRow:
    """One measure at one exit.

    auroc: chance that an out-of-scope text is doubted more than one in scope. false_positive_rate:
    share of texts in scope that are flagged where 95 % of those out of scope are. gains, savings:
    AUROC above, and false-positive rate below, those of the measures before it in MEASURES at the
    same exit, resample by resample.
    """

    exit_layer: int
    measure: str
    auroc: Estimate
    false_positive_rate: Estimate
    gains: dict[str, Estimate]
    savings: dict[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfScopeReport:
    """Every measure at every exit, on in_scope and out_of_scope texts."""

    in_scope: int
    out_of_scope: int
    rows: tuple[OutOfScopeRow, ...]

    def table(self) -> str:
        """The rows as text."""
        lines = [
            f"{self.in_scope} texts in scope, {self.out_of_scope} out of scope",
            f"{'exit':>4}  {'measure':<16}{'AUROC':<26}{'false positives at 95 %':<26}"
            f"{'AUROC gain over':<11}",
        ]
        for row in self.rows:
            cells = (row.auroc, row.false_positive_rate)
            shown = "".join(f"{cell!s:<26}" for cell in cells)
            gains = ", ".join(f"{name} {gain!s}" for name, gain in row.gains.items())
            lines.append(f"{row.exit_layer:>4}  {row.measure:<16}{shown}{gains}".rstrip())
        return "\n".join(lines)


def evaluate_out_of_scope(
    path: Path, texts: Path, split: str, *, draws: int = _DRAWS, seed: int = 0
) -> OutOfScopeReport:
    """A checkpoint's doubt about the texts of a file, against that about a split of its own data.

    texts: CSV, TSV, JSONL or Parquet; only the column of texts is read. Raises DataError for texts
    that cannot be used or a split that is empty, ConfigurationError for a checkpoint of pairs.
    """
    checkpoint = load_checkpoint(path)
    manifest = checkpoint.manifest
    if manifest.takes_pairs:
        raise ConfigurationError(f"{path} takes pairs; out-of-scope texts are single texts")
    splits = splits_of(manifest)
    examples = getattr(splits, split)
    if not examples:
        raise DataError(f"the configuration of {path} has no {split} split; set data.{split}")
    encoder = TextEncoder.from_file(
        checkpoint.tokenizer_file,
        max_length=manifest.max_length,
        unicode_form=manifest.unicode_form,
        pad_token_id=checkpoint.model.pad_token_id,
    )
    inside = encode_split(encoder, examples, splits.labels, split)
    outside = _encode(encoder, texts, manifest.configuration.data.text_column)
    device = choose_device("auto")
    model = checkpoint.model.to(device)
    return compare_measures(
        run_every_exit(model, inside, device, describe=split),
        run_every_exit(model, outside, device, describe="out of scope"),
        manifest.exits,
        draws=draws,
        seed=seed,
    )


def compare_measures(
    inside: ExitOutputs, outside: ExitOutputs, exits: tuple[int, ...], *, draws: int, seed: int
) -> OutOfScopeReport:
    """Every measure at every exit, on texts in scope and out of scope."""
    rows = []
    for index, layer in enumerate(exits):
        doubts = zip(_doubts(inside, index), _doubts(outside, index), strict=True)
        found = [
            detection_draws(others, wanted, recall=RECALL, draws=draws, seed=seed)
            for others, wanted in doubts
        ]
        for place, (measure, one) in enumerate(zip(MEASURES, found, strict=True)):
            before = dict(zip(MEASURES[:place], found[:place], strict=True))
            rows.append(
                OutOfScopeRow(
                    exit_layer=layer,
                    measure=measure,
                    auroc=estimate(one.auroc, one.auroc_draws),
                    false_positive_rate=estimate(one.false_positive_rate, one.false_positive_draws),
                    gains={name: _gain(one, base) for name, base in before.items()},
                    savings={name: _saving(one, base) for name, base in before.items()},
                )
            )
    return OutOfScopeReport(
        in_scope=len(inside.logits), out_of_scope=len(outside.logits), rows=tuple(rows)
    )


def _gain(one: DetectionDraws, base: DetectionDraws) -> Estimate:
    return estimate(one.auroc - base.auroc, one.auroc_draws - base.auroc_draws)


def _saving(one: DetectionDraws, base: DetectionDraws) -> Estimate:
    return estimate(
        base.false_positive_rate - one.false_positive_rate,
        base.false_positive_draws - one.false_positive_draws,
    )


def _doubts(outputs: ExitOutputs, index: int) -> tuple[Scores, ...]:
    """What each of MEASURES says at an exit, [texts] each, higher for more doubt."""
    logits: NDArray[np.float32] = outputs.logits[:, index]
    assert outputs.label_distance is not None, "checkpoints have representations"
    return (
        maximum_doubt(logits),
        # In float64: the outputs' own float32 would tie the surest texts.
        normalised_entropy(logits),
        outputs.label_distance[:, index],
    )


def _encode(encoder: TextEncoder, path: Path, column: str) -> EncodedSplit:
    """Texts without labels; the label index means nothing. Raises DataError."""
    encoded = []
    for row, text in enumerate(read_texts(path, column), start=1):
        try:
            encoded.append(encoder.encode(TextInput(text)))
        except TextError as error:
            raise DataError(f"{path}, row {row}: {error}") from error
    return EncodedSplit(encoded, np.zeros(len(encoded), dtype=np.int64))
