"""What training, export and service agree on: confidence, exit policies, certificates, bundles.

The names below need numpy alone. Bundles (pydantic), text (tokenizers) and the stage runner
(onnxruntime) are imported from their own files: `multi_exit.bundle`, `.text_encoder`, `.runner`.
"""

from multi_exit.certificate import (
    Certificate,
    binomial_tail,
    binomial_upper_bound,
    consistency_certificate,
)
from multi_exit.confidence import log_probabilities, normalised_entropy, probabilities
from multi_exit.errors import PatamarError
from multi_exit.policy import Policy

__all__ = [
    "Certificate",
    "PatamarError",
    "Policy",
    "binomial_tail",
    "binomial_upper_bound",
    "consistency_certificate",
    "log_probabilities",
    "normalised_entropy",
    "probabilities",
]
