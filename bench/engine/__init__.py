"""The graphs alone: staging overhead and precisions."""
