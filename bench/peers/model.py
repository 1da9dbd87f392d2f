"""The peer's model: a transformers sequence classifier of the size of our checkpoint's backbone.

Its weights are random, so its answers mean nothing; its layers have the shape of ours, so its
time does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from training.checkpoint import load_checkpoint


def write_peer_model(checkpoint_path: Path, target: Path) -> None:
    """Writes a model folder that a transformers pipeline loads."""
    checkpoint = load_checkpoint(checkpoint_path)
    labels = checkpoint.manifest.labels
    config = AutoConfig.from_pretrained(checkpoint_path, num_labels=len(labels))
    model: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(target)
    tokenizer = Tokenizer.from_file(str(checkpoint.tokenizer_file))
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        model_max_length=checkpoint.manifest.max_length,
        pad_token=tokenizer.id_to_token(checkpoint.model.pad_token_id),
    )
    wrapped.save_pretrained(target)
    # Older versions of transformers, which some peers pin, know this class only.
    settings_file = target / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text())
    settings_file.write_text(json.dumps({**settings, "tokenizer_class": "PreTrainedTokenizerFast"}))


if __name__ == "__main__":
    write_peer_model(Path(sys.argv[1]), Path(sys.argv[2]))
