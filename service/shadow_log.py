"""The shadow log: what every exit said about the shadow rows, for a later calibration.

Format, for whoever reads it (`patamar calibrate --from-shadow FILE`): UTF-8 JSON lines without a
header, one a row, in the order in which the rows were admitted:

    {"bundle": "0123456789ab", "entropies": [0.41, 0.02, 0.0], "labels": [2, 2, 2], "sampled": 0.01}

bundle: identifier of the bundle that answered. entropies: normalised, one an exit, first exit
first; float32 values, written so that they are read back unchanged. labels: index of each exit's
label in the bundle's `labels`, one an exit; the last is that of full depth. sampled: the share of
rows that was drawn, above 0. Never a text, nor anything from which one could be told.

At half of its bound the file becomes FILE.1, in place of an older one, and a new one begins: both
together stay within the bound, and the newest rows are kept.

Owner: the event loop. Lines are short and rare: each is written there and then.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from multi_exit.errors import ConfigurationError
from service.shadow_sample import ShadowRow

logger = logging.getLogger(__name__)


class ShadowLog:
    """Appends to `path`. max_bytes: of the file and its predecessor together.

    Raises ConfigurationError for a path that cannot be written.
    """

    def __init__(self, path: Path, *, bundle: str, share: float, max_bytes: int) -> None:
        self._path = path
        self._bundle = bundle
        self._share = share
        self._bound = max_bytes // 2
        self._ended = False
        try:
            path.open("ab").close()
            _end_with_a_whole_line(path)
        except OSError as error:
            raise ConfigurationError(
                f"shadow_log {path} cannot be written ({error.strerror}); choose a file in a "
                "folder that exists and that this user may write, or none"
            ) from error

    def write(self, row: ShadowRow) -> None:
        """Appends a row. Where the disk refuses, the log ends and the service goes on."""
        if self._ended:
            return
        document = {
            "bundle": self._bundle,
            "entropies": row.entropies,
            "labels": row.labels,
            "sampled": self._share,
        }
        line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        try:
            if self._path.exists() and self._path.stat().st_size + len(line) > self._bound:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            # Unbuffered and closed: each line is on its way to the disk, whatever happens to us.
            with self._path.open("ab", buffering=0) as file:
                file.write(line)
        except OSError as error:
            self._ended = True
            logger.error("the shadow log %s ends here: %s", self._path, error.strerror)


def _end_with_a_whole_line(path: Path) -> None:
    """Drops what a crash or a full disk left of a last line: the next would be glued to it."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - 2**16)  # lines are far shorter
        file.seek(start)
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(start + tail.rfind(b"\n") + 1)
