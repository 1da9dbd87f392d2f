"""Certificates and the drift test, in simulation and on real texts."""
