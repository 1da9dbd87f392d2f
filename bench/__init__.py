"""Measurements: staging overhead and throughput against a peer, always interleaved in one run."""
