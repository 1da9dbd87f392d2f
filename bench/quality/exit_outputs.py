"""What every exit of a trained model says about texts it never saw, kept in one small file.

`python -m bench.quality.exit_outputs CHECKPOINT FILE.npz [--shift TEXTS]` runs a checkpoint over
all texts of its data files that trained or chose nothing, and over a file of texts of another kind.
The file holds labels and entropies, never texts: anyone can repeat `bench.quality.contracts` on it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from multi_exit.text_encoder import TextEncoder
    from training.checkpoint import Checkpoint
    from training.data import LabelledExample

MOST_TEXTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExitRecord:
    """What every exit said about some texts.

    name: of the checkpoint. exits: exit layers. predicted int64 and entropy float32 [texts, exits];
    labels int64 [texts]: the true ones. shift_predicted, shift_entropy: the same of texts of
    another kind, without labels; None where there are none.
    """

    name: str
    classes: int
    exits: tuple[int, ...]
    predicted: NDArray[np.int64]
    entropy: NDArray[np.float32]
    labels: NDArray[np.int64]
    shift_predicted: NDArray[np.int64] | None = None
    shift_entropy: NDArray[np.float32] | None = None

    def save(self, path: Path) -> None:
        """Writes one compressed file of numpy arrays; nothing in it is ever unpickled."""
        arrays = {
            "name": np.array(self.name),
            "classes": np.array(self.classes),
            "exits": np.array(self.exits),
            "predicted": self.predicted.astype(np.int16),
            "entropy": self.entropy,
            "labels": self.labels.astype(np.int16),
        }
        if self.shift_predicted is not None and self.shift_entropy is not None:
            arrays["shift_predicted"] = self.shift_predicted.astype(np.int16)
            arrays["shift_entropy"] = self.shift_entropy
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def some(self, most: int, seed: int) -> ExitRecord:
        """At most `most` of the texts, drawn by `seed`; those of another kind all stay."""
        if len(self.labels) <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).permutation(len(self.labels))[:most])
        return replace(
            self,
            predicted=self.predicted[rows],
            entropy=self.entropy[rows],
            labels=self.labels[rows],
        )


def load_record(path: Path) -> ExitRecord:
    """Reads what `ExitRecord.save` wrote."""
    with np.load(path, allow_pickle=False) as found:
        shifted = "shift_predicted" in found
        return ExitRecord(
            name=str(found["name"]),
            classes=int(found["classes"]),
            exits=tuple(found["exits"].tolist()),
            predicted=found["predicted"].astype(np.int64),
            entropy=found["entropy"],
            labels=found["labels"].astype(np.int64),
            shift_predicted=found["shift_predicted"].astype(np.int64) if shifted else None,
            shift_entropy=found["shift_entropy"] if shifted else None,
        )


def record_of(
    path: Path, *, shift: Sequence[Path] = (), most: int = MOST_TEXTS, seed: int = 0
) -> ExitRecord:
    """Runs a checkpoint over what it never saw: left-over training texts and the test split.

    Texts that occur twice are taken once. At most `most` of them, drawn by `seed`. shift: files of
    texts of another kind; their labels are not read.
    """
    import torch

    from training.checkpoint import load_checkpoint
    from training.data.tables import read_texts
    from training.evaluate import encode_split, run_every_exit

    checkpoint = load_checkpoint(path)
    encoder = _encoder(checkpoint)
    labels = checkpoint.manifest.labels
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = checkpoint.model.to(device)
    unseen = _unseen(checkpoint)
    if len(unseen) > most:
        unseen = random.Random(seed).sample(unseen, most)
    encoded = encode_split(encoder, unseen, labels, "unseen texts")
    outputs = run_every_exit(model, encoded, device)
    shift_predicted = shift_entropy = None
    if shift:
        foreign = _foreign([text for file in shift for text in read_texts(file)], labels[0])
        shifted = run_every_exit(model, encode_split(encoder, foreign, labels, "shift"), device)
        shift_predicted, shift_entropy = shifted.labels, shifted.entropy
    return ExitRecord(
        name=path.name,
        classes=len(labels),
        exits=checkpoint.manifest.exits,
        predicted=outputs.labels,
        entropy=outputs.entropy,
        labels=encoded.labels,
        shift_predicted=shift_predicted,
        shift_entropy=shift_entropy,
    )


def _encoder(checkpoint: Checkpoint) -> TextEncoder:
    from multi_exit.text_encoder import TextEncoder

    return TextEncoder.from_file(
        checkpoint.tokenizer_file,
        max_length=checkpoint.manifest.max_length,
        unicode_form=checkpoint.manifest.unicode_form,
        pad_token_id=checkpoint.model.pad_token_id,
    )


def _unseen(checkpoint: Checkpoint) -> list[LabelledExample]:
    """Texts of the data files that neither trained the model nor chose its best epoch."""
    from training.data import load_splits
    from training.provenance import splits_of

    used = splits_of(checkpoint.manifest)
    config = checkpoint.manifest.configuration.data.model_copy(update={"train_limit": None})
    every = load_splits(config)
    seen = {example.text_input for example in (*used.train, *used.validation)}
    found = {
        example.text_input: example
        for example in (*every.train, *every.calibration, *every.test)
        if example.text_input not in seen
    }
    return list(found.values())


def _foreign(texts: Sequence[str], label: str) -> list[LabelledExample]:
    """Texts under any label of the model: theirs is none of them, and it is not used."""
    from training.data import LabelledExample

    return [LabelledExample(text, label) for text in dict.fromkeys(texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path, help="file to write, .npz")
    parser.add_argument("--shift", type=Path, nargs="*", default=[], help="texts of another kind")
    parser.add_argument("--most", type=int, default=MOST_TEXTS, help="texts at most")
    options = parser.parse_args()
    record = record_of(options.checkpoint, shift=options.shift, most=options.most)
    record.save(options.output)
    print(f"{len(record.labels):,} texts of {record.name} in {options.output}")


if __name__ == "__main__":
    main()
