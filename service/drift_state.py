"""The drift tests on disk, so that a restart forgets neither evidence nor an alarm.

Owner: the event loop asks, a thread of this file writes: a slow disk must not delay answers. A
file is written beside the old one and put in its place, so that a crash leaves either.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from multi_exit.drift import DriftTest
from multi_exit.errors import ConfigurationError

logger = logging.getLogger(__name__)


class DriftStateFile:
    """The tests of one bundle, by operating point. bundle: its identifier."""

    def __init__(self, path: Path, *, bundle: str) -> None:
        self._path = path
        self._bundle = bundle
        # One thread: writes stay in order.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="patamar-drift-state")

    def load(self) -> dict[str, DriftTest]:
        """The tests that were saved; none for no file, or for one of another bundle.

        Raises ConfigurationError for a file that is damaged or cannot be read.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigurationError(
                f"drift_state_file {self._path} cannot be read ({error.strerror}); make it a file "
                "that this user may read and write"
            ) from error
        try:
            document = json.loads(content)
            bundle, tests = document["bundle"], document["tests"]
            if bundle != self._bundle:
                logger.info(
                    "the drift state in %s is of bundle %s, not of %s; it starts anew",
                    self._path,
                    bundle,
                    self._bundle,
                )
                return {}
            return {str(name): DriftTest.from_document(test) for name, test in tests.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"drift_state_file {self._path} is damaged ({error}); put a copy of it back, or "
                "remove it: watching then starts anew, and an alarm it held is forgotten"
            ) from error

    def check_writable(self, tests: Mapping[str, DriftTest]) -> None:
        """Saves at once. Raises ConfigurationError where that fails."""
        try:
            _write(self._path, self._document(tests))
        except OSError as error:
            raise ConfigurationError(
                f"drift_state_file {self._path} cannot be written ({error.strerror}); choose a "
                "file in a folder that exists and that this user may write"
            ) from error

    def save(self, tests: Mapping[str, DriftTest]) -> None:
        """Has the tests saved soon. A disk that refuses is logged; watching goes on."""
        self._writer.submit(self._try_to_write, self._document(tests))

    def close(self) -> None:
        """Waits for what is being saved."""
        self._writer.shutdown(wait=True)

    def _document(self, tests: Mapping[str, DriftTest]) -> dict[str, Any]:
        return {
            "bundle": self._bundle,
            "tests": {name: test.as_document() for name, test in tests.items()},
        }

    def _try_to_write(self, document: Mapping[str, Any]) -> None:
        try:
            _write(self._path, document)
        except OSError as error:
            logger.error("the drift state %s was not saved: %s", self._path, error.strerror)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        # Before the rename: a machine that loses power must not keep the new name alone.
        os.fsync(file.fileno())
    beside.replace(path)
