"""Training of multi-exit classifiers with aligned contrastive learning."""
