"""Every error that Patamar raises on purpose, in one tree.

PatamarError
├── ConfigurationError    a setting or configuration file is wrong
├── DataError             labelled or calibration data cannot be used
├── CheckpointError       a training checkpoint is missing, damaged or of another kind
├── BundleError           a bundle is missing, damaged or of another format
├── VerificationError     exported graphs do not compute what the checkpoint computes
├── ProviderUnavailable   the execution provider that was asked for is not to be had
├── PolicyError           a request's speed and quality settings name no policy
└── TextError             a text cannot be classified
    ├── InvalidText       it is not valid Unicode
    ├── EmptyText         nothing is left of it after normalising
    └── TextTooLong       it does not fit, and cutting it was refused

Messages say what is wrong and what to do. What a client sees of them over HTTP is decided in
`service/errors.py` alone.
"""


class PatamarError(Exception):
    """Parent of all errors raised on purpose; anything else is a bug."""


class ConfigurationError(PatamarError):
    """A setting or a configuration file is wrong."""


class DataError(PatamarError):
    """Data cannot be used; the message names the file and, where there is one, the row."""


class CheckpointError(PatamarError):
    """A training checkpoint is missing, damaged or of another kind."""


class BundleError(PatamarError):
    """A bundle is missing, damaged or of another format."""


class VerificationError(PatamarError):
    """Exported graphs do not compute what the checkpoint computes."""


class ProviderUnavailable(PatamarError):
    """The execution provider that was asked for is not to be had."""


class PolicyError(PatamarError):
    """A request's speed and quality settings name no policy."""


class TextError(PatamarError):
    """A text cannot be classified. `side` says which: "text" or "text_pair"."""

    def __init__(self, message: str, *, side: str = "text") -> None:
        super().__init__(message)
        self.side = side


class InvalidText(TextError):
    """The text is not valid Unicode: it holds a lone surrogate."""


class EmptyText(TextError):
    """Nothing is left of the text after normalising."""


class TextTooLong(TextError):
    """The text does not fit the model, and cutting it was refused."""
