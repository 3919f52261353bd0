"""Benchmarks: each prints a ratio against a peer, measured in turns in one run."""
