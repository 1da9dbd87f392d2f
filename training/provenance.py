"""Holds a checkpoint to the very texts it was trained on, so that no split leaks into another."""

from __future__ import annotations

from multi_exit.errors import DataError
from training.checkpoint import CheckpointManifest
from training.data import Splits, load_splits


def splits_of(manifest: CheckpointManifest) -> Splits:
    """The splits that a checkpoint was made with, read again.

    Raises DataError where files changed since: texts that training saw could then be among those
    that calibrate or test it.
    """
    splits = load_splits(manifest.configuration.data)
    found = splits.fingerprints
    changed = [
        name
        for name in sorted(found.keys() | manifest.data_sha256.keys())
        if found.get(name) != manifest.data_sha256.get(name)
    ]
    if changed or splits.labels != manifest.labels:
        raise DataError(
            f"the data changed since the checkpoint was trained ({', '.join(changed) or 'labels'} "
            "are others now); restore the files, or train again"
        )
    return splits
