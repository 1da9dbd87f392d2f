"""What training, export and service agree on: confidence, exit policies, certificates, bundles.

The names below need numpy alone. Bundles (pydantic), text (tokenizers) and the stage runner
(onnxruntime) are imported from their own files: `multi_exit.bundle`, `.text_encoder`, `.runner`.
"""

from multi_exit.binomial import binomial_tail, binomial_upper_bound
from multi_exit.certificate import (
    Certificate,
    accuracy_drop_certificate,
    consistency_certificate,
    expected_disagreement_certificate,
)
from multi_exit.confidence import log_probabilities, normalised_entropy, probabilities
from multi_exit.errors import PatamarError
from multi_exit.outcome import ExitOutputs, PolicyOutcome, policy_outcome
from multi_exit.policy import Policy
from multi_exit.threshold_path import constant_path, per_exit_path

__all__ = [
    "Certificate",
    "ExitOutputs",
    "PatamarError",
    "Policy",
    "PolicyOutcome",
    "accuracy_drop_certificate",
    "binomial_tail",
    "binomial_upper_bound",
    "consistency_certificate",
    "constant_path",
    "expected_disagreement_certificate",
    "log_probabilities",
    "normalised_entropy",
    "per_exit_path",
    "policy_outcome",
    "probabilities",
]
