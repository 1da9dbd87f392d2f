"""Programs that run in a peer's own environment, and import nothing of ours."""
