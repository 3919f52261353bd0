"""Hostile input: models and tensors that are wrong on purpose, and what they must not do."""
