"""The peer's model: a transformers sequence classifier with the backbone of our checkpoint.

Its head is not trained, so its answers mean nothing; its layers have the shape and the weights of
ours, so its time does.
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from training.checkpoint import load_checkpoint


def write_peer_model(checkpoint_path: Path, target: Path) -> None:
    """Writes a model folder that a transformers pipeline loads."""
    checkpoint = load_checkpoint(checkpoint_path)
    labels = checkpoint.manifest.labels
    config = AutoConfig.from_pretrained(checkpoint_path, num_labels=len(labels))
    model = AutoModelForSequenceClassification.from_config(config)
    model.eval().save_pretrained(target)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(checkpoint.tokenizer_file),
        model_max_length=checkpoint.manifest.max_length,
        pad_token="[PAD]",
    )
    tokenizer.save_pretrained(target)
