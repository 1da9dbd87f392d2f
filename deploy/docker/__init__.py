"""What the container images install, to the exact version."""
