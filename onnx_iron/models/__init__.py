"""Model families written with functional, and the readers of checkpoints."""
